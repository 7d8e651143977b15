//! The team, cost center and tenant that a call is charged to.

use std::sync::Arc;

/// The team, cost center and tenant that a call is charged to, as far as they are known.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Payer {
    /// Name of the team.
    pub team: Option<Arc<str>>,
    /// Name of the team's cost center.
    pub cost_center: Option<Arc<str>>,
    /// Name of the tenant: the customer for whom the call is made.
    pub tenant: Option<Arc<str>>,
}

impl Payer {
    /// Fills in missing names from `next`. Team and cost center are always taken from the same
    /// source, the first that names either of them.
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
