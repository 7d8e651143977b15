//! Who pays for a call.

use std::sync::Arc;

/// Who pays for a call, as far as it is known.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Payer {
    /// The team.
    pub team: Option<Arc<str>>,
    /// The cost center of the team.
    pub cost_center: Option<Arc<str>>,
    /// The tenant, that is the customer for whom it is made.
    pub tenant: Option<Arc<str>>,
}

impl Payer {
    /// Adds what `next` says where this says nothing. A cost center is that of a team: both come from the one that
    /// names either of them.
    #[must_use]
    pub fn or(self, next: &Payer) -> Payer {
        let named = self.team.is_some() || self.cost_center.is_some();
        let of_team = if named { &self } else { next };
        Payer {
            team: of_team.team.clone(),
            cost_center: of_team.cost_center.clone(),
            tenant: self.tenant.clone().or_else(|| next.tenant.clone()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn payer(team: &str, cost_center: &str, tenant: &str) -> Payer {
        let name = |text: &str| (!text.is_empty()).then(|| text.into());
        Payer {
            team: name(team),
            cost_center: name(cost_center),
            tenant: name(tenant),
        }
    }

    #[test]
    fn a_cost_center_is_never_that_of_another_team() {
        let process = payer("platform", "1", "us");
        assert_eq!(payer("", "", "").or(&process), process);
        assert_eq!(
            payer("search", "", "").or(&process),
            payer("search", "", "us")
        );
        assert_eq!(payer("", "2", "").or(&process), payer("", "2", "us"));
        assert_eq!(
            payer("", "", "them").or(&process),
            payer("platform", "1", "them")
        );
    }
}
