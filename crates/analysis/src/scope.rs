//! Which calls may be turns of one conversation.

use super::hash::Seeds;

/// Whose call it is. Calls with different keys, tenants or workloads are never compared.
#[derive(Clone, Copy, Debug, Default)]
pub struct Scope<'a> {
    /// The hash of the API key.
    pub key_hash: Option<&'a str>,
    /// The tenant that the key belongs to.
    pub tenant: Option<&'a str>,
    /// The workload of the call.
    pub workload: Option<&'a str>,
    /// The session of the call.
    pub session: Option<&'a str>,
    /// Whether the session is guessed, so that a change of the prompt may change it.
    pub is_guess: bool,
    /// The agent that makes the call.
    pub agent: Option<&'a str>,
    /// The model that the call asks for.
    pub model: Option<&'a str>,
}

/// The hashes of a scope.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ScopeHashes {
    /// Turns with equal messages belong together if this is equal.
    pub(crate) messages: u64,
    /// Turns belong together if this is equal, whatever their messages are; `None` without a session.
    pub(crate) session: Option<u64>,
    /// Calls are repeated requests only if this is equal.
    pub(crate) request: u64,
}

impl Scope<'_> {
    pub(crate) fn hashes(&self, seeds: &Seeds) -> ScopeHashes {
        let base = seeds.short((self.key_hash, self.tenant, self.workload));
        let named = self.session.filter(|_| !self.is_guess);
        let messages = seeds.short((base, named, self.agent));
        let session = self.session;
        ScopeHashes {
            messages,
            session: session.map(|session| seeds.short((base, session, self.agent, "session"))),
            request: seeds.short((messages, self.model, "request")),
        }
    }
}
