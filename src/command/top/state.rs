//! The state of the screen and the effects of keys.

use super::poller::Update;
use super::table::ViewTable;
use super::views::{Content, View};
use crate::command::api_client::ApiError;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

const MAX_FILTER: usize = 100;

#[derive(Clone, Debug)]
pub(super) struct TopState {
    pub(super) address: String,
    pub(super) view: View,
    pub(super) filter: String,
    /// Whether keys are added to the filter.
    pub(super) typing: bool,
    /// The sort column of each view, and whether the order is ascending.
    sorted: [(usize, bool); View::ALL.len()],
    pub(super) selected: usize,
    pub(super) overlay: Option<Overlay>,
    pub(super) in_flight: u64,
    pub(super) tps: f64,
    pub(super) firing: Vec<String>,
    content: Option<Content>,
    pub(super) error: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Overlay {
    Help,
    Details(String),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Action {
    Stay,
    Ask,
    End,
}

impl TopState {
    pub(super) fn new(address: &str) -> TopState {
        TopState {
            address: address.to_owned(),
            view: View::default(),
            filter: String::new(),
            typing: false,
            sorted: View::ALL.map(View::sorted),
            selected: 0,
            overlay: None,
            in_flight: 0,
            tps: 0.0,
            firing: Vec::new(),
            content: None,
            error: None,
        }
    }

    /// Applies an update. After an error, the last figures remain.
    pub(super) fn take(&mut self, update: Result<Update, ApiError>) {
        match update {
            Ok(update) => {
                (self.in_flight, self.tps) = (update.in_flight, update.tps);
                self.firing = update.firing;
                self.content = Some(update.content);
                self.error = None;
            }
            Err(error) => self.error = Some(error.to_string()),
        }
    }

    pub(super) fn table(&self) -> Option<ViewTable> {
        let content = self.shown()?;
        let (column, ascending) = self.sorting();
        Some(content.table().arranged(&self.filter, column, ascending))
    }

    pub(super) fn call_source(&self) -> Option<&str> {
        self.shown()?.call_source()
    }

    /// Returns why objectives are missed, if the view shows objectives.
    pub(super) fn causes(&self) -> Vec<String> {
        self.shown().map_or(Vec::new(), Content::causes)
    }

    pub(super) fn shown(&self) -> Option<&Content> {
        let content = self.content.as_ref();
        content.filter(|content| content.view() == self.view)
    }

    pub(super) fn sorting(&self) -> (usize, bool) {
        self.sorted[self.view as usize]
    }

    pub(super) fn key(&mut self, key: KeyEvent) -> Action {
        if key.code == KeyCode::Char('c') && key.modifiers.contains(KeyModifiers::CONTROL) {
            return Action::End;
        }
        if self.typing {
            self.typed(key.code);
            return Action::Stay;
        }
        if self.overlay.is_some() {
            let closes = [KeyCode::Esc, KeyCode::Enter, KeyCode::Backspace];
            if closes.contains(&key.code) || matches!(key.code, KeyCode::Char('?' | 'q')) {
                self.overlay = None;
                return Action::Stay;
            }
        }
        let rows = self.table().map_or(0, |table| table.rows.len());
        let columns = self.table().map_or(1, |table| table.columns.len());
        let sorted = &mut self.sorted[self.view as usize];
        let last = rows.saturating_sub(1);
        match key.code {
            KeyCode::Char('q') => return Action::End,
            KeyCode::Char('?') => self.overlay = Some(Overlay::Help),
            KeyCode::Enter => self.overlay = self.chosen().map(Overlay::Details),
            KeyCode::Char(digit @ '1'..='5') => {
                return self.switch_to(digit as usize - '1' as usize);
            }
            KeyCode::Tab | KeyCode::Right => return self.switch_to(self.view as usize + 1),
            KeyCode::BackTab | KeyCode::Left => {
                return self.switch_to(self.view as usize + View::ALL.len() - 1);
            }
            KeyCode::Char('s') => *sorted = ((sorted.0 + 1) % columns, false),
            KeyCode::Char('r') => sorted.1 = !sorted.1,
            KeyCode::Char('/') => self.typing = true,
            KeyCode::Esc => self.filter.clear(),
            KeyCode::Down | KeyCode::Char('j') => self.selected = (self.selected + 1).min(last),
            KeyCode::Up | KeyCode::Char('k') => {
                self.selected = self.selected.min(last).saturating_sub(1)
            }
            KeyCode::Home | KeyCode::Char('g') => self.selected = 0,
            KeyCode::End | KeyCode::Char('G') => self.selected = last,
            _ => {}
        }
        Action::Stay
    }

    fn chosen(&self) -> Option<String> {
        let table = self.table()?;
        let last = table.rows.len().checked_sub(1)?;
        Some(table.rows[self.selected.min(last)].id.clone())
    }

    fn typed(&mut self, code: KeyCode) {
        match code {
            KeyCode::Char(character) if self.filter.len() < MAX_FILTER => {
                self.filter.push(character)
            }
            KeyCode::Backspace => drop(self.filter.pop()),
            KeyCode::Enter => self.typing = false,
            KeyCode::Esc => {
                self.typing = false;
                self.filter.clear();
            }
            _ => {}
        }
        self.selected = 0;
    }

    fn switch_to(&mut self, number: usize) -> Action {
        self.view = View::ALL[number % View::ALL.len()];
        self.selected = 0;
        self.overlay = None;
        Action::Ask
    }
}
