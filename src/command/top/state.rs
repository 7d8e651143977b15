//! What is on the screen, and what keys do to it.

use super::poller::Update;
use super::table::ViewTable;
use super::views::{Content, View};
use crate::command::api_client::ApiError;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

/// Characters of a filter.
const MAX_FILTER: usize = 100;

/// What is on the screen.
#[derive(Clone, Debug)]
pub(super) struct State {
    pub(super) address: String,
    pub(super) view: View,
    pub(super) filter: String,
    /// Keys go into the filter.
    pub(super) typing: bool,
    /// The column sorted by and whether the smallest comes first, of each view.
    sorted: [(usize, bool); View::ALL.len()],
    pub(super) selected: usize,
    pub(super) in_flight: u64,
    pub(super) tps: f64,
    content: Option<Content>,
    /// Why there is nothing new.
    pub(super) error: Option<String>,
}

/// What a key asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    Stay,
    /// Another view is looked at.
    Ask,
    End,
}

impl State {
    pub(super) fn new(address: &str) -> State {
        State {
            address: address.to_owned(),
            view: View::default(),
            filter: String::new(),
            typing: false,
            sorted: View::ALL.map(View::sorted),
            selected: 0,
            in_flight: 0,
            tps: 0.0,
            content: None,
            error: None,
        }
    }

    /// What the proxy said; where it says nothing, what was known stays.
    pub(super) fn take(&mut self, update: Result<Update, ApiError>) {
        match update {
            Ok(update) => {
                (self.in_flight, self.tps) = (update.in_flight, update.tps);
                self.content = Some(update.content);
                self.error = None;
            }
            Err(error) => self.error = Some(error.to_string()),
        }
    }

    /// What is looked at, as it is to be shown; `None` until the proxy answered.
    pub(super) fn table(&self) -> Option<ViewTable> {
        let content = self
            .content
            .as_ref()
            .filter(|content| content.view() == self.view)?;
        let (column, ascending) = self.sorting();
        Some(content.table().arranged(&self.filter, column, ascending))
    }

    /// Where finished calls come from.
    pub(super) fn store(&self) -> Option<&str> {
        let content = self
            .content
            .as_ref()
            .filter(|content| content.view() == self.view)?;
        content.store()
    }

    /// The column sorted by, and whether the smallest comes first.
    pub(super) fn sorting(&self) -> (usize, bool) {
        self.sorted[self.view as usize]
    }

    pub(super) fn key(&mut self, key: KeyEvent) -> Next {
        if key.code == KeyCode::Char('c') && key.modifiers.contains(KeyModifiers::CONTROL) {
            return Next::End;
        }
        if self.typing {
            self.typed(key.code);
            return Next::Stay;
        }
        let rows = self.table().map_or(0, |table| table.rows.len());
        let columns = self.table().map_or(1, |table| table.columns.len());
        let sorted = &mut self.sorted[self.view as usize];
        let last = rows.saturating_sub(1);
        match key.code {
            KeyCode::Char('q') => return Next::End,
            KeyCode::Char(digit @ '1'..='4') => {
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
        Next::Stay
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

    fn switch_to(&mut self, number: usize) -> Next {
        self.view = View::ALL[number % View::ALL.len()];
        self.selected = 0;
        Next::Ask
    }
}
