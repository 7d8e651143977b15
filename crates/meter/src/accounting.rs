//! Prices, budgets and quotas: the live counterpart of the configuration.

use crate::cost::budget::{Budget, Budgets};
use crate::cost::{PriceList, Prices};
use crate::quota::{Quota, Quotas};
use std::sync::Arc;

/// The prices, budgets and quotas in force, with their spending and usage.
#[derive(Clone, Debug, Default)]
pub struct Accounting {
    /// What tokens cost.
    pub prices: Arc<Prices>,
    /// The budgets and their spending.
    pub budgets: Arc<Budgets>,
    /// The quotas and their usage.
    pub quotas: Arc<Quotas>,
}

impl Accounting {
    /// Without spending or usage.
    pub fn new(prices: &PriceList, budgets: &[Budget], quotas: &[Quota]) -> Accounting {
        Accounting {
            prices: Prices::new(prices),
            budgets: Budgets::new(budgets),
            quotas: Quotas::new(quotas),
        }
    }

    /// Applies another configuration. Budgets and quotas that stay keep their spending and
    /// usage, and calls in flight keep sharing the time of GPUs.
    pub fn reload(&self, prices: &PriceList, budgets: &[Budget], quotas: &[Quota]) -> Accounting {
        self.budgets.change(budgets);
        Accounting {
            prices: Prices::new(prices).carry_over(&self.prices),
            budgets: Arc::clone(&self.budgets),
            quotas: Quotas::new(quotas).carry_over(&self.quotas),
        }
    }

    /// Whether it can never refuse a call.
    pub fn admits_all(&self) -> bool {
        self.quotas.is_empty() && self.budgets.is_empty()
    }

    /// Whether any limit may depend on request bodies.
    pub fn may_depend_on_bodies(&self) -> bool {
        self.quotas.may_depend_on_bodies() || self.budgets.may_depend_on_bodies()
    }
}
