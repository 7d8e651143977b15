//! What dialect an event or a body speaks, by its own looks.
