//! `[[notify]]`: from the file's tables to settings.

use super::file;
use super::problems::{Problems, check_label};
use super::spanned::Spanned;
use std::collections::HashSet;
use tokengauge_slo::{Destination, Receiver, ReceiverKind};

const PAGER_DUTY: &str = "https://events.pagerduty.com/v2/enqueue";

pub(super) fn receivers(
    written: Vec<Spanned<file::Notify>>,
    problems: &mut Problems<'_>,
) -> Vec<Receiver> {
    let mut names = HashSet::new();
    let mut all = Vec::new();
    for spanned in written {
        let notify = spanned.get_ref();
        if let Some(name) = &notify.name {
            check_label(name, problems);
        }
        let kind = *notify.kind.get_ref();
        let name = notify.name.as_ref().map(|name| name.get_ref().as_str());
        let name = name.unwrap_or(kind.as_str()).to_owned();
        if !names.insert(name.clone()) {
            let reason =
                format!("there are two receivers named `{name}`; give each its own `name`");
            problems.at(&notify.kind, reason);
        }
        let Some(url) = place(notify, problems) else {
            continue;
        };
        let key = notify.routing_key_file.as_ref();
        match (kind, key) {
            (ReceiverKind::PagerDuty, None) => {
                problems.at(
                    &notify.kind,
                    "PagerDuty needs a `routing_key_file` with the integration key",
                );
            }
            (ReceiverKind::PagerDuty, Some(_)) | (_, None) => {}
            (_, Some(key)) => problems.at(key, "only PagerDuty has a routing key"),
        }
        all.push(Receiver {
            name,
            kind,
            url,
            routing_key_file: key.map(|key| key.get_ref().clone()),
            severity: notify.severity,
            repeat: notify.repeat.map_or(kind.repeat(), |span| span.0),
        });
    }
    all
}

fn place(notify: &file::Notify, problems: &mut Problems<'_>) -> Option<Destination> {
    match (&notify.url, &notify.url_file) {
        (Some(url), None) => {
            let usable = url.get_ref().parse::<http::Uri>().is_ok_and(|uri| {
                matches!(uri.scheme_str(), Some("http" | "https")) && uri.host().is_some()
            });
            if !usable {
                problems.at(url, "must be a URL that starts with http:// or https://");
            }
            Some(Destination::Url(url.get_ref().clone()))
        }
        (None, Some(file)) => Some(Destination::File(file.get_ref().clone())),
        (None, None) if *notify.kind.get_ref() == ReceiverKind::PagerDuty => {
            Some(Destination::Url(PAGER_DUTY.to_owned()))
        }
        (None, None) => {
            problems.at(&notify.kind, "needs a `url`, or a `url_file` with the URL");
            None
        }
        (Some(url), Some(_)) => {
            problems.at(url, "give either `url` or `url_file`, not both");
            None
        }
    }
}
