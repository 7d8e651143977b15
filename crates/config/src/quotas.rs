use super::file;
use super::objectives::selector;
use super::problems::{Problems, check_label};
use super::spanned::Spanned;
use super::*;
use std::collections::HashSet;
use std::num::NonZeroU32;
use tokengauge_core::caller::OnUnreadable;

pub(super) fn quotas(
    written: Vec<Spanned<file::Quota>>,
    objectives: &[Arc<Objective>],
    routes: &[Arc<Route>],
    measure: &Measure,
    problems: &mut Problems<'_>,
) -> Vec<Quota> {
    let mut names = HashSet::new();
    let mut quotas = Vec::new();
    for spanned in written {
        let span = spanned.span();
        let written = spanned.into_inner();
        check_label(&written.name, problems);
        let name = written.name.get_ref();
        if !names.insert(name.clone()) {
            problems.at(
                &written.name,
                format!("there are two quotas named `{name}`; give each its own `name`"),
            );
        }
        let requests = written.requests_per_minute;
        let tokens = written.tokens_per_minute;
        if requests.is_none() && tokens.is_none() && written.concurrent.is_none() {
            let reason = "needs `requests_per_minute`, `tokens_per_minute` or `concurrent`";
            problems.at(&Spanned::new(span, ()), reason);
        }
        if let Some(slo) = &written.while_burning
            && !objectives
                .iter()
                .any(|known| *known.name == **slo.get_ref())
        {
            let reason = format!("there is no [[slo]] named `{}`", slo.get_ref());
            problems.at(slo, reason);
        }
        quotas.push(Quota {
            name: name.as_str().into(),
            per: written.per,
            select: selector(&written.select, routes, measure, problems),
            requests_per_minute: requests.and_then(NonZeroU32::new),
            tokens_per_minute: tokens.and_then(NonZeroU32::new),
            concurrent: written.concurrent,
            while_runaway: written.while_runaway,
            while_burning: written.while_burning.map(|slo| slo.into_inner().into()),
            mode: written.mode,
            on_unreadable: written.on_unreadable.unwrap_or(OnUnreadable::Count),
        });
    }
    quotas
}
