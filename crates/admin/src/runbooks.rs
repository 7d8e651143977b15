//! The runbooks as a page to which alerts link: `/runbooks#slosname`.

use super::page::Asset;
use axum::http::HeaderMap;
use axum::response::Response;
use pulldown_cmark::{CowStr, Event, Options, Parser, Tag, TagEnd, html};
use std::sync::LazyLock;

/// The path of the page. It needs no token, since it contains no data of this process.
pub const PATH: &str = "/runbooks";

const TEXT: &str = include_str!("../../../docs/runbooks.md");

const BEFORE: &str = "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
    <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
    <title>Runbooks · tokengauge</title>\n\
    <link rel=\"icon\" href=\"page/icon.svg\" type=\"image/svg+xml\">\n\
    <link rel=\"stylesheet\" href=\"page/theme.css\">\n\
    <link rel=\"stylesheet\" href=\"page/runbooks.css\">\n\
    <script src=\"page/theme.js\"></script>\n</head>\n<body>\n\
    <header><a href=\"./\">tokengauge</a></header>\n<main>\n";
const AFTER: &str = "</main>\n</body>\n</html>\n";

static PAGE: LazyLock<Asset> = LazyLock::new(|| Asset::new("runbooks.html", rendered(TEXT)));

pub(super) async fn runbooks(headers: HeaderMap) -> Response {
    PAGE.serve(&headers)
}

/// Renders a Markdown text as a page with a list of its sections. Raw HTML in it is shown as text.
fn rendered(text: &str) -> String {
    let mut events = plain(Parser::new_ext(text, Options::ENABLE_TABLES));
    let mut sections = String::new();
    for place in 0..events.len() {
        let text = heading_text(&events[place + 1..]);
        if let Event::Start(Tag::Heading { id, level, .. }) = &mut events[place] {
            let anchor = text.to_lowercase().replace(' ', "-");
            if *level as usize == 2 {
                sections.push_str(&format!("<li><a href=\"#{anchor}\">{text}</a></li>\n"));
            }
            *id = Some(CowStr::from(anchor));
        }
    }
    let mut page = String::from(BEFORE);
    page.push_str(&format!(
        "<nav aria-label=\"Alerts\"><ul>\n{sections}</ul></nav>\n"
    ));
    let mut text = String::new();
    html::push_html(&mut text, events.into_iter());
    // A block of code scrolls sideways on a phone: the keyboard must reach it. A `<pre>` within text is escaped.
    page.push_str(&text.replace("<pre>", "<pre tabindex=\"0\">"));
    page.push_str(AFTER);
    page
}

/// Converts raw HTML to text, and removes links to other documents, which are not served.
fn plain<'a>(parser: impl Iterator<Item = Event<'a>>) -> Vec<Event<'a>> {
    let mut elsewhere = false;
    let mut events = Vec::new();
    for event in parser {
        match event {
            Event::Html(text) | Event::InlineHtml(text) => events.push(Event::Text(text)),
            Event::Start(Tag::Link { ref dest_url, .. }) => {
                elsewhere = !dest_url.starts_with('#');
                events.extend((!elsewhere).then_some(event));
            }
            Event::End(TagEnd::Link) if elsewhere => elsewhere = false,
            other => events.push(other),
        }
    }
    events
}

fn heading_text(events: &[Event<'_>]) -> String {
    let within = events
        .iter()
        .take_while(|event| !matches!(event, Event::End(TagEnd::Heading(_))));
    within
        .filter_map(|event| match event {
            Event::Text(text) | Event::Code(text) => Some(text.as_ref()),
            _ => None,
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_section_has_an_address_and_every_link_leads_to_one() {
        let page = rendered(TEXT);
        let names = TEXT.lines().filter_map(|line| line.strip_prefix("## "));
        for name in names {
            let anchor = name.to_lowercase().replace(' ', "-");
            assert!(
                page.contains(&format!("<h2 id=\"{anchor}\">{name}</h2>")),
                "{name}"
            );
            assert!(
                page.contains(&format!("<li><a href=\"#{anchor}\">")),
                "{name}"
            );
        }
        for link in page.split("<a href=\"").skip(1) {
            let target = link.split('"').next().expect("its end");
            let here = target == "./" || page.contains(&format!("id=\"{}\"", &target[1..]));
            assert!(here, "{target}");
        }
    }

    #[test]
    fn markup_within_a_text_is_text() {
        let page = rendered("## A\n\nt <script>x</script> [b](b.md) <i>c</i>\n\n## D e\n");
        let body = page.split("<main>").nth(1).expect("a body");
        assert!(
            !body.contains("<script>") && !body.contains("<i>"),
            "{body}"
        );
        assert!(body.contains(" b ") && !body.contains("b.md"), "{body}");
        assert!(body.contains("id=\"d-e\""), "{body}");
    }
}
