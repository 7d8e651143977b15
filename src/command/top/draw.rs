//! Draws the screen.

use super::state::State;
use super::table::{Cell, Tone, ViewTable};
use super::views::View;
use ratatui::Frame;
use ratatui::layout::{Alignment, Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span, Text};
use ratatui::widgets::{Paragraph, Row, Table, TableState, Wrap};

/// Lines of causes, at most.
const MAX_CAUSE_LINES: usize = 8;
const KEYS: &str = "1-4 tab view  s sort  r reverse  / filter  ↑↓ move  q quit";

pub(super) fn draw(frame: &mut Frame<'_>, state: &State) {
    let error = u16::from(state.error.is_some()) * 2;
    let causes = state.causes();
    let parts = [
        Constraint::Length(1),
        Constraint::Length(1),
        Constraint::Length(error),
        Constraint::Min(3),
        Constraint::Length(cause_lines(&causes, frame.area().width)),
        Constraint::Length(1),
    ];
    let [head, tabs, message, body, why, foot] = Layout::vertical(parts).areas(frame.area());
    frame.render_widget(title(state), head);
    frame.render_widget(choice(state), tabs);
    if let Some(error) = &state.error {
        let style = Style::new().fg(Color::Red);
        let error = Paragraph::new(error.as_str()).style(style);
        frame.render_widget(error.wrap(Wrap { trim: true }), message);
    }
    match state.table() {
        None => frame.render_widget(Paragraph::new("…"), body),
        Some(content) if content.rows.is_empty() => {
            let why = if state.filter.is_empty() {
                state.view.nothing()
            } else {
                "nothing has the filter's text"
            };
            frame.render_widget(Paragraph::new(why).wrap(Wrap { trim: true }), body);
        }
        Some(content) => table(frame, body, state, content),
    }
    let causes = Paragraph::new(causes.join("\n")).wrap(Wrap { trim: true });
    frame.render_widget(causes, why);
    frame.render_widget(bottom(state), foot);
}

/// The lines that causes take at a width; words that are wrapped early may take one more each.
fn cause_lines(causes: &[String], width: u16) -> u16 {
    let width = usize::from(width.max(1));
    let lines = causes.iter().map(|cause| {
        let characters = cause.chars().count();
        characters.div_ceil(width) + usize::from(characters > width)
    });
    lines.sum::<usize>().min(MAX_CAUSE_LINES) as u16
}

fn title(state: &State) -> Line<'_> {
    let store = state
        .store()
        .map_or(String::new(), |store| format!("  from {store}"));
    Line::from(vec![
        Span::styled("tokengauge", Style::new().add_modifier(Modifier::BOLD)),
        Span::raw(format!(
            "  {}  {} streams  {:.0} tokens/s{store}",
            state.address, state.in_flight, state.tps
        )),
    ])
}

fn choice(state: &State) -> Line<'_> {
    let tabs = View::ALL.iter().enumerate().map(|(at, view)| {
        let style = match *view == state.view {
            true => Style::new().add_modifier(Modifier::REVERSED),
            false => Style::new(),
        };
        Span::styled(format!(" {} {} ", at + 1, view.name()), style)
    });
    Line::from_iter(tabs)
}

fn bottom(state: &State) -> Line<'_> {
    if state.typing {
        return Line::from(format!("/{}▏ enter keeps it, esc forgets it", state.filter));
    }
    match state.filter.as_str() {
        "" => Line::from(KEYS),
        filter => Line::from(format!("filter: {filter} (esc forgets it)  {KEYS}")),
    }
}

fn table(frame: &mut Frame<'_>, area: Rect, state: &State, content: ViewTable) {
    let (sorted, ascending) = state.sorting();
    let number = |at: usize| content.rows.first().is_some_and(|row| row[at].is_number());
    let heads = content.columns.iter().enumerate().map(|(at, column)| {
        let arrow = match (at == sorted, ascending) {
            (false, _) => "",
            (true, true) => "↑",
            (true, false) => "↓",
        };
        aligned(format!("{}{arrow}", column.head), number(at), Style::new())
    });
    let widths = content.columns.iter().map(|column| match column.grows {
        true => Constraint::Min(column.width),
        false => Constraint::Length(column.width + 1),
    });
    let header = Row::new(heads).style(Style::new().add_modifier(Modifier::BOLD));
    let selected = state.selected.min(content.rows.len() - 1);
    let rows = content
        .rows
        .iter()
        .map(|row| Row::new(row.iter().map(shown)));
    let table = Table::new(rows, widths).header(header).column_spacing(1);
    let table = table.row_highlight_style(Style::new().add_modifier(Modifier::REVERSED));
    let mut at = TableState::new().with_selected(selected);
    frame.render_stateful_widget(table, area, &mut at);
}

fn shown(cell: &Cell) -> Text<'static> {
    let style = match cell.tone {
        Tone::Plain => Style::new(),
        Tone::Good => Style::new().fg(Color::Green),
        Tone::Poor => Style::new().fg(Color::Yellow),
        Tone::Bad => Style::new().fg(Color::Red),
    };
    aligned(cell.text.clone(), cell.is_number(), style)
}

fn aligned(text: String, right: bool, style: Style) -> Text<'static> {
    let alignment = if right {
        Alignment::Right
    } else {
        Alignment::Left
    };
    Text::styled(text, style).alignment(alignment)
}
