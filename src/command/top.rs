//! `tokengauge top`: shows a running proxy in the terminal.

mod draw;
mod poller;
mod state;
mod table;
#[cfg(test)]
mod tests;
mod views;

use super::error::CommandError;
use crate::Error;
use crate::cli::TopArgs;
use crate::command::api_client::Proxy;
use poller::Poller;
use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event, KeyEventKind};
use state::{Action, TopState};
use std::io::IsTerminal;
use std::time::Duration;

const LOOK_EVERY: Duration = Duration::from_millis(100);

pub(super) fn top(args: &TopArgs) -> Result<(), Error> {
    if !std::io::stdout().is_terminal() {
        return Err(CommandError::NoTerminal.into());
    }
    let proxy = Proxy::of(&args.admin)?;
    let mut state = TopState::new(proxy.address());
    let poller = Poller::start(proxy, state.view, args.every)?;
    // An unreachable proxy is reported before the screen is set up.
    let first = poller.wait()?;
    state.take(Ok(first));
    let mut terminal = ratatui::try_init().map_err(CommandError::Terminal)?;
    let watched = watch(&mut terminal, &mut state, &poller);
    ratatui::restore();
    Ok(watched.map_err(CommandError::Terminal)?)
}

fn watch(
    terminal: &mut DefaultTerminal,
    state: &mut TopState,
    poller: &Poller,
) -> std::io::Result<()> {
    loop {
        while let Some(update) = poller.try_next() {
            state.take(update);
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
            Action::Stay => {}
            Action::Ask => poller.view(state.view),
            Action::End => return Ok(()),
        }
    }
}
