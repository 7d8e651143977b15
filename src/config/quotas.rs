//! `[[quota]]`, from as written to as used.

use super::file;
use super::objectives::selector;
use super::resolve::{Problems, check_label};
use super::*;
use crate::caller::OnUnreadable;
use crate::quota::MAX_QUOTAS;
use std::collections::HashSet;
use std::num::NonZeroU32;
use toml::Spanned;

pub(super) fn quotas(
    written: Vec<Spanned<file::Quota>>,
    objectives: &[Arc<Objective>],
    routes: &[Arc<Route>],
    measure: &Measure,
    problems: &mut Problems<'_>,
) -> Vec<Quota> {
    if let Some(beyond) = written.get(MAX_QUOTAS) {
        problems.at(beyond, format!("there can be at most {MAX_QUOTAS} quotas"));
    }
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
                format!("there are two quotas named `{name}`"),
            );
        }
        let requests = positive(written.requests_per_minute.as_ref(), problems);
        let tokens = positive(written.tokens_per_minute.as_ref(), problems);
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
            requests_per_minute: requests,
            tokens_per_minute: tokens,
            concurrent: written.concurrent,
            while_burning: written.while_burning.map(|slo| slo.into_inner().into()),
            mode: written.mode,
            on_unreadable: written.on_unreadable.unwrap_or(OnUnreadable::Count),
        });
    }
    quotas
}

fn positive(written: Option<&Spanned<u32>>, problems: &mut Problems<'_>) -> Option<NonZeroU32> {
    let written = written?;
    let number = NonZeroU32::new(*written.get_ref());
    if number.is_none() {
        problems.at(
            written,
            "must be at least 1; `concurrent = 0` refuses all calls",
        );
    }
    number
}
