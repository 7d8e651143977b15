//! What calls cost and what they may take: the live counterpart of the configuration's prices,
//! budgets and quotas.

use crate::cost::budget::{Budget, Budgets};
use crate::cost::{PriceList, Prices};
use crate::quota::{Quota, Quotas};
use std::sync::Arc;

/// The prices, budgets and quotas that hold now, with what has been spent and taken of them.
#[derive(Clone, Debug, Default)]
pub struct Accounting {
    /// What tokens cost.
    pub prices: Arc<Prices>,
    /// What was spent of the budgets.
    pub budgets: Arc<Budgets>,
    /// What calls take at once and by the minute.
    pub quotas: Arc<Quotas>,
}

impl Accounting {
    /// With nothing spent and nothing taken.
    pub fn new(prices: &PriceList, budgets: &[Budget], quotas: &[Quota]) -> Accounting {
        Accounting {
            prices: Prices::new(prices),
            budgets: Budgets::new(budgets),
            quotas: Quotas::new(quotas),
        }
    }

    /// By another configuration from now on. What was spent and taken stays where a budget or
    /// quota does, and calls under way go on sharing the time of GPUs.
    pub fn reload(&self, prices: &PriceList, budgets: &[Budget], quotas: &[Quota]) -> Accounting {
        self.budgets.change(budgets);
        Accounting {
            prices: Prices::new(prices).carry_over(&self.prices),
            budgets: Arc::clone(&self.budgets),
            quotas: Quotas::new(quotas).carry_over(&self.quotas),
        }
    }

    /// Whether no call can be refused by it.
    pub fn admits_all(&self) -> bool {
        self.quotas.is_empty() && self.budgets.is_empty()
    }

    /// Whether the body of a call may decide on it.
    pub fn may_depend_on_bodies(&self) -> bool {
        self.quotas.may_depend_on_bodies() || self.budgets.may_depend_on_bodies()
    }
}
