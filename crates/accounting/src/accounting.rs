//! The prices, budgets and quotas in force, built from the configuration.

use crate::cost::budget::{Budget, Budgets};
use crate::cost::{PriceList, Prices};
use crate::quota::{Quota, Quotas};
use crate::sharing::Sharing;
use std::sync::Arc;

#[derive(Clone, Debug, Default)]
pub struct Accounting {
    pub prices: Arc<Prices>,
    pub budgets: Arc<Budgets>,
    pub quotas: Arc<Quotas>,
    /// How budgets and quotas are shared with other processes; `None` if they are not shared.
    pub sharing: Option<Arc<Sharing>>,
}

impl Accounting {
    /// Creates the state without any spending or usage, for this process only.
    pub fn new(prices: &PriceList, budgets: &[Budget], quotas: &[Quota]) -> Accounting {
        Accounting::shared(prices, budgets, quotas, None)
    }

    /// Creates the state without any spending or usage, shared with other processes if `sharing` is
    /// given.
    pub fn shared(
        prices: &PriceList,
        budgets: &[Budget],
        quotas: &[Quota],
        sharing: Option<Arc<Sharing>>,
    ) -> Accounting {
        Accounting {
            prices: Prices::new(prices),
            budgets: Budgets::shared(budgets, sharing.clone()),
            quotas: Quotas::shared(quotas, sharing.as_ref()),
            sharing,
        }
    }

    /// Applies another configuration. Budgets and quotas that remain keep their spending and usage.
    /// Calls in flight continue to share the time of GPUs.
    pub fn reload(&self, prices: &PriceList, budgets: &[Budget], quotas: &[Quota]) -> Accounting {
        self.budgets.change(budgets);
        Accounting {
            prices: Prices::new(prices).carry_over(&self.prices),
            budgets: Arc::clone(&self.budgets),
            quotas: Quotas::shared(quotas, self.sharing.as_ref()).carry_over(&self.quotas),
            sharing: self.sharing.clone(),
        }
    }

    pub fn admits_all(&self) -> bool {
        self.quotas.is_empty() && self.budgets.is_empty()
    }

    pub fn may_depend_on_bodies(&self) -> bool {
        self.quotas.may_depend_on_bodies() || self.budgets.may_depend_on_bodies()
    }
}
