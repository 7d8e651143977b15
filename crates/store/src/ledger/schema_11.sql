-- Version 11: the provider behind a gateway, why a call has no cost, events that were left out, and how long the provider ran
-- its own tools; NULL for older calls.

ALTER TABLE calls ADD COLUMN served_by INTEGER;
ALTER TABLE calls ADD COLUMN cost_unavailable INTEGER;
ALTER TABLE calls ADD COLUMN skipped_events INTEGER;
ALTER TABLE calls ADD COLUMN server_tools_us INTEGER;
