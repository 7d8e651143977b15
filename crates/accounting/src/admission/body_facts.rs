//! Facts from the body of a call that waits for admission.

use super::AdmissionRequest;
use crate::attribution::{StrictFacts, strict_facts};
use tokengauge_core::call::RequestFacts;
use tokengauge_core::caller::KnownName;
use tokengauge_core::observer::{RequestBody, UnreadableBody};
use tokengauge_wire::BodyHead;

pub(super) struct BodyFacts {
    pub(super) facts: Option<RequestFacts>,
    pub(super) missing_name: KnownName<'static>,
    pub(super) models: Option<Vec<String>>,
    pub(super) unread: Option<UnreadableBody>,
    pub(super) bodiless: bool,
}

impl BodyFacts {
    fn unknown(missing_name: KnownName<'static>, unread: Option<UnreadableBody>) -> BodyFacts {
        BodyFacts {
            facts: None,
            missing_name,
            models: None,
            unread,
            bodiless: false,
        }
    }

    pub(super) fn read(
        request: &AdmissionRequest<'_>,
        head: &BodyHead,
        body: RequestBody<'_>,
    ) -> BodyFacts {
        let body = match body {
            RequestBody::Pending => return BodyFacts::unknown(KnownName::Unread, None),
            RequestBody::Whole([]) => {
                return BodyFacts {
                    bodiless: true,
                    ..BodyFacts::unknown(KnownName::Absent, None)
                };
            }
            // A message can name a model. No other facts are read from messages.
            RequestBody::Unread(UnreadableBody::Upgraded) => {
                return BodyFacts::unknown(KnownName::Absent, Some(UnreadableBody::Upgraded));
            }
            RequestBody::Unread(unread) => {
                return BodyFacts::unknown(KnownName::Unread, Some(unread));
            }
            RequestBody::Whole(body) => body,
        };
        let (limit, memory) = (request.body_bytes, request.memory);
        let strictly = |body: &[u8]| strict_facts(request.dialect, request.rules, body);
        let mut found = head.read(body, &memory.large, limit, strictly);
        if matches!(found, Err(UnreadableBody::NoMemory)) {
            found = head.read(body, &memory.small, limit, strictly);
        }
        match found {
            Ok(StrictFacts {
                mut facts,
                models,
                unread,
            }) => {
                if unread.is_some() {
                    facts.model = None;
                }
                BodyFacts {
                    facts: Some(facts),
                    models: Some(models).filter(|_| unread.is_none()),
                    ..BodyFacts::unknown(KnownName::Absent, unread)
                }
            }
            Err(unread) => BodyFacts::unknown(KnownName::Unread, Some(unread)),
        }
    }
}
