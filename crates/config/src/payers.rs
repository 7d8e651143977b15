//! `[[payer]]` and the payer keys of `[attribution]`: from the file's tables to settings.

use super::attribution::{check_place, each, header};
use super::file;
use super::objectives::check_route;
use super::problems::{Problems, check_label};
use super::spanned::Spanned;
use super::*;
use tokengauge_accounting::attribution::{
    PayerHeaders, PayerRule, PayerRules, check_key, payer_name,
};
use tokengauge_core::payer::Payer;

/// `own_use` needs API keys in records. `ports` are the ports of the listeners, if the file sets them.
pub(super) fn rules(
    written: Vec<Spanned<file::Payer>>,
    attribution: &file::Attribution,
    own_use: bool,
    (ports, routes): (Option<&[u16]>, &[Arc<Route>]),
    problems: &mut Problems<'_>,
) -> PayerRules {
    let mut table = Vec::new();
    for spanned in written {
        let place = Spanned::new(spanned.span(), ());
        let entry = spanned.into_inner();
        check_place(entry.port.as_ref(), entry.path.as_ref(), ports, problems);
        check_route(entry.route.as_ref(), routes, problems);
        table.push(rule(entry, &place, problems));
    }
    let mut headers = |names: &[_]| each(names, header, problems);
    let headers = PayerHeaders {
        team: headers(&attribution.team_headers),
        cost_center: headers(&attribution.cost_center_headers),
        tenant: headers(&attribution.tenant_headers),
    };
    let process = [
        &attribution.team,
        &attribution.cost_center,
        &attribution.tenant,
    ];
    PayerRules {
        table: table.into(),
        headers,
        process: Arc::new(payer(process, problems)),
        record_keys: attribution.record_keys || own_use,
    }
}

fn rule(entry: file::Payer, place: &Spanned<()>, problems: &mut Problems<'_>) -> PayerRule {
    let payer = payer([&entry.team, &entry.cost_center, &entry.tenant], problems);
    if payer == Payer::default() {
        problems.at(place, "needs `team`, `cost_center` or `tenant`");
    }
    let by_place = entry.path.is_some() || entry.port.is_some() || entry.route.is_some();
    if entry.keys.is_empty() && !by_place {
        problems.at(place, "needs `keys`, `path`, `port` or `route`");
    }
    for key in &entry.keys {
        if let Err(reason) = check_key(key.get_ref()) {
            problems.at(key, reason);
        }
    }
    PayerRule {
        payer,
        keys: entry.keys.into_iter().map(Spanned::into_inner).collect(),
        port: entry.port.map(Spanned::into_inner),
        path: entry.path.map(Spanned::into_inner),
        route: entry.route.map(Spanned::into_inner),
    }
}

fn payer(names: [&Option<Spanned<String>>; 3], problems: &mut Problems<'_>) -> Payer {
    for name in names.into_iter().flatten() {
        check_label(name, problems);
        if payer_name(name.get_ref()).is_none() {
            problems.at(name, "must have visible characters");
        }
    }
    let name = |name: &Option<Spanned<String>>| Some(name.as_ref()?.get_ref().as_str().into());
    let [team, cost_center, tenant] = names.map(name);
    Payer {
        team,
        cost_center,
        tenant,
    }
}
