//! `tokengauge top`: a running proxy in the terminal.

mod draw;
mod poller;
mod state;
mod table;
#[cfg(test)]
mod tests;
mod views;

use crate::Error;
use crate::cli::TopArgs;
use crate::command::api_client::Proxy;
use poller::Poller;
use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event, KeyEventKind};
use state::{Next, State};
use std::io::IsTerminal;
use std::time::Duration;

/// How long keys are waited for before the screen is drawn anew.
const LOOK_EVERY: Duration = Duration::from_millis(100);

pub(super) fn top(args: &TopArgs) -> Result<(), Error> {
    if !std::io::stdout().is_terminal() {
        let elsewhere = "top needs a terminal; `tokengauge report` and /api/v1 are for scripts";
        return Err(Error::Failed(elsewhere.to_owned()));
    }
    let proxy = Proxy::of(&args.admin)?;
    let mut state = State::new(proxy.address());
    let asking = Poller::start(proxy, state.view, args.every)?;
    // Whoever cannot be reached at all is reported without a screen.
    let first = asking.wait().map_err(Error::Failed)?;
    state.heard(Ok(first));
    let mut terminal = ratatui::try_init().map_err(screen)?;
    let watched = watch(&mut terminal, &mut state, &asking);
    ratatui::restore();
    watched.map_err(screen)
}

fn screen(error: std::io::Error) -> Error {
    Error::Failed(format!("the terminal: {error}"))
}

fn watch(
    terminal: &mut DefaultTerminal,
    state: &mut State,
    asking: &Poller,
) -> std::io::Result<()> {
    loop {
        while let Some(heard) = asking.heard() {
            state.heard(heard);
        }
        terminal.draw(|frame| draw::draw(frame, state))?;
        if !event::poll(LOOK_EVERY)? {
            continue;
        }
        let Event::Key(key) = event::read()? else {
            continue;
        };
        if key.kind == KeyEventKind::Release {
            continue;
        }
        match state.key(key) {
            Next::Stay => {}
            Next::Ask => asking.view(state.view),
            Next::End => return Ok(()),
        }
    }
}
