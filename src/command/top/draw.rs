//! Draws the screen.

use super::state::{Overlay, TopState};
use super::table::{Cell, TableRow, Tone, ViewTable};
use super::views::{Content, View};
use ratatui::Frame;
use ratatui::layout::{Alignment, Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span, Text};
use ratatui::widgets::{Paragraph, Row, Table, TableState, Wrap};

const MAX_CAUSE_LINES: usize = 8;
const KEYS: &str = "1-5 tab view  s sort  r reverse  / filter  enter details  ? help  q quit";
const HELP: [(&str, &str); 9] = [
    ("1-5, tab", "switch to another view"),
    ("s", "sort by the next column"),
    ("r", "reverse the order"),
    (
        "/",
        "show only rows that contain the text you type; esc clears the filter",
    ),
    ("up, down, home, end", "select another row"),
    ("enter", "show all details of the selected row"),
    ("?", "this help"),
    ("esc", "back"),
    ("q", "quit"),
];

pub(super) fn draw(frame: &mut Frame<'_>, state: &TopState) {
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
    match (&state.overlay, state.table()) {
        (Some(Overlay::Help), table) => frame.render_widget(help(table), body),
        (Some(Overlay::Details(id)), Some(table)) => {
            frame.render_widget(details(id, &table), body);
        }
        (_, None) => frame.render_widget(Paragraph::new("…"), body),
        (None, Some(content)) if content.rows.is_empty() => {
            let why = if state.filter.is_empty() {
                state.shown().map_or("", Content::nothing)
            } else {
                "no row contains the filter text"
            };
            frame.render_widget(Paragraph::new(why).wrap(Wrap { trim: true }), body);
        }
        (None, Some(content)) => table(frame, body, state, content),
    }
    let causes = Paragraph::new(causes.join("\n")).wrap(Wrap { trim: true });
    frame.render_widget(causes, why);
    frame.render_widget(bottom(state), foot);
}

/// Returns the number of lines for causes at a width, with a reserve of one line each for early wrapping.
fn cause_lines(causes: &[String], width: u16) -> u16 {
    let width = usize::from(width.max(1));
    let lines = causes.iter().map(|cause| {
        let characters = cause.chars().count();
        characters.div_ceil(width) + usize::from(characters > width)
    });
    lines.sum::<usize>().min(MAX_CAUSE_LINES) as u16
}

fn title(state: &TopState) -> Line<'_> {
    let source = state
        .call_source()
        .map_or(String::new(), |source| format!("  from {source}"));
    let firing = if state.firing.is_empty() {
        String::new()
    } else {
        format!("  ALERT {}", state.firing.join(", "))
    };
    Line::from(vec![
        Span::styled("tokengauge", Style::new().add_modifier(Modifier::BOLD)),
        Span::styled(firing, Style::new().fg(Color::Red)),
        Span::raw(format!(
            "  {}  {} streams  {:.0} tokens/s{source}",
            state.address, state.in_flight, state.tps
        )),
    ])
}

fn choice(state: &TopState) -> Line<'_> {
    let tabs = View::ALL.iter().enumerate().map(|(at, view)| {
        let style = if *view == state.view {
            Style::new().add_modifier(Modifier::REVERSED)
        } else {
            Style::new()
        };
        Span::styled(format!(" {} {} ", at + 1, view.name()), style)
    });
    Line::from_iter(tabs)
}

fn bottom(state: &TopState) -> Line<'_> {
    if state.typing {
        return Line::from(format!(
            "/{}▏ enter applies the filter, esc clears it",
            state.filter
        ));
    }
    if state.overlay.is_some() {
        return Line::from("esc back");
    }
    match state.filter.as_str() {
        "" => Line::from(KEYS),
        filter => Line::from(format!("filter: {filter} (esc clears it)  {KEYS}")),
    }
}

fn help(table: Option<ViewTable>) -> Paragraph<'static> {
    let line = |name: &str, about: &str| {
        let name = Span::styled(
            format!("{name:20} "),
            Style::new().add_modifier(Modifier::BOLD),
        );
        Line::from(vec![name, Span::raw(about.to_owned())])
    };
    let columns = table.map_or(&[][..], |table| table.columns);
    let mut lines: Vec<_> = columns
        .iter()
        .map(|column| line(column.head, column.about))
        .collect();
    lines.push(Line::default());
    lines.extend(HELP.iter().map(|(key, does)| line(key, does)));
    Paragraph::new(lines)
}

fn details(id: &str, table: &ViewTable) -> Paragraph<'static> {
    let Some(row) = table.rows.iter().find(|row| row.id == id) else {
        return Paragraph::new("this row no longer exists; esc goes back");
    };
    let line = |head: &str, cell: &Cell| {
        let head = Span::styled(
            format!("{head:14} "),
            Style::new().add_modifier(Modifier::BOLD),
        );
        Line::from(vec![
            head,
            Span::styled(cell.text.clone(), style(cell.tone)),
        ])
    };
    let TableRow { cells, more, .. } = row;
    let shown = table.columns.iter().zip(cells);
    let lines = shown.map(|(column, cell)| line(column.head, cell));
    let lines = lines.chain(more.iter().map(|(head, cell)| line(head, cell)));
    Paragraph::new(lines.collect::<Vec<_>>()).wrap(Wrap { trim: false })
}

fn table(frame: &mut Frame<'_>, area: Rect, state: &TopState, content: ViewTable) {
    let (sorted, ascending) = state.sorting();
    let columns = content.fitting(area.width, sorted);
    let number = |at: usize| {
        let first = content.rows.first();
        first.is_some_and(|row| row.cells[at].is_number())
    };
    let heads = columns.iter().map(|&at| {
        let arrow = match (at == sorted, ascending) {
            (false, _) => "",
            (true, true) => "↑",
            (true, false) => "↓",
        };
        let head = content.columns[at].head;
        aligned(format!("{head}{arrow}"), number(at), Style::new())
    });
    let widths = columns.iter().map(|&at| {
        let column = &content.columns[at];
        if column.grows {
            Constraint::Min(column.needs())
        } else {
            Constraint::Length(column.needs())
        }
    });
    let header = Row::new(heads).style(Style::new().add_modifier(Modifier::BOLD));
    let selected = state.selected.min(content.rows.len() - 1);
    let rows = content
        .rows
        .iter()
        .map(|row| Row::new(columns.iter().map(|&at| shown(&row.cells[at]))));
    let table = Table::new(rows, widths).header(header).column_spacing(1);
    let table = table.row_highlight_style(Style::new().add_modifier(Modifier::REVERSED));
    let mut at = TableState::new().with_selected(selected);
    frame.render_stateful_widget(table, area, &mut at);
}

fn style(tone: Tone) -> Style {
    match tone {
        Tone::Plain => Style::new(),
        Tone::Good => Style::new().fg(Color::Green),
        Tone::Poor => Style::new().fg(Color::Yellow),
        Tone::Bad => Style::new().fg(Color::Red),
    }
}

fn shown(cell: &Cell) -> Text<'static> {
    aligned(cell.text.clone(), cell.is_number(), style(cell.tone))
}

fn aligned(text: String, right: bool, style: Style) -> Text<'static> {
    let alignment = if right {
        Alignment::Right
    } else {
        Alignment::Left
    };
    Text::styled(text, style).alignment(alignment)
}
