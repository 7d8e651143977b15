//! The phases of calls as bars in written HTML files.

use maud::{Markup, html};
use tokengauge_store::query::Phase;

pub const STYLE: &str = "\
.lane{position:relative;display:block;height:.9rem;min-width:14rem;background:color-mix(in srgb,var(--grid) 40%,transparent)}\
.lane i{position:absolute;top:0;bottom:0;min-width:1px;print-color-adjust:exact;-webkit-print-color-adjust:exact}\
.phase{display:inline-block;width:.8rem;height:.8rem;border-radius:2px;margin:0 .3rem 0 .8rem;\
print-color-adjust:exact;-webkit-print-color-adjust:exact}\
.connect,.upload{background:#8a8f98}.queue{background:#b3661c}.prefill{background:#c9a227}.reasoning{background:#7a5cc2}\
.answer{background:#2f7fbf}.other{background:#5a6270}.bad{font-weight:600}\
@media print{.lane{min-width:30mm}}";

pub fn key() -> Markup {
    let all = [
        ("connect", "connect and upload"),
        ("queue", "queue"),
        ("prefill", "time to first token"),
        ("reasoning", "reasoning"),
        ("answer", "answer"),
        ("other", "other"),
    ];
    html! {
        p.key {
            @for (class, name) in all { b class={ "phase " (class) } {} (name) }
        }
    }
}

/// Phases as a bar whose whole width is `length` seconds.
pub fn bar(phases: &[Phase], length: f64) -> Markup {
    let at = |seconds: f64| 100.0 * seconds / length.max(1e-9);
    html! {
        span.lane {
            @for phase in phases {
                @let class: &str = phase.name.into();
                @let seconds = phase.end - phase.start;
                i class=(class) title=(format!("{class} {seconds:.3} s"))
                    style=(format!("left:{:.2}%;width:{:.2}%", at(phase.start), at(seconds))) {}
            }
        }
    }
}
