//! A JSON file in the state directory that survives a restart. Only the process that holds the lock file writes it.
//! When that process ends, another one can take the lock.

use crate::private;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::fs::{File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};

/// A state file, with its lock if this process holds it.
#[derive(Debug)]
pub struct StateFile {
    path: PathBuf,
    lock: Option<File>,
}

impl StateFile {
    /// Opens the file `name` in `folder`, creates the folder if it is missing, and takes the lock if no other process
    /// holds it.
    ///
    /// # Errors
    /// Returns an error if the folder cannot be created or written to.
    pub fn open(folder: &Path, name: &str) -> io::Result<StateFile> {
        std::fs::create_dir_all(folder)?;
        let mut file = StateFile {
            path: folder.join(name),
            lock: None,
        };
        file.lock()?;
        Ok(file)
    }

    /// Checks that [`StateFile::open`] and [`StateFile::read`] would succeed. Creates no file and takes no lock.
    ///
    /// # Errors
    /// Returns the error with which they would fail.
    pub fn check(folder: &Path, name: &str) -> io::Result<()> {
        private::check_folder(folder)?;
        let path = folder.join(name);
        private::check_append(&path.with_extension("lock"))?;
        match std::fs::read(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    pub fn is_locked(&self) -> bool {
        self.lock.is_some()
    }

    /// Takes the lock if it is free. Returns `false` if another process holds it.
    ///
    /// # Errors
    /// Returns an error if the folder cannot be written to.
    pub fn lock(&mut self) -> io::Result<bool> {
        if self.lock.is_none() {
            let file = private::append(&self.path.with_extension("lock"))?;
            match file.try_lock() {
                Ok(()) => self.lock = Some(file),
                Err(TryLockError::WouldBlock) => {}
                Err(TryLockError::Error(error)) => return Err(error),
            }
        }
        Ok(self.is_locked())
    }

    /// Returns the content, or `None` if the file is missing or damaged. A damaged file is renamed and logged.
    ///
    /// # Errors
    /// Returns an error if the file exists but cannot be read.
    pub fn read<T: DeserializeOwned>(&self) -> io::Result<Option<T>> {
        let bytes = match std::fs::read(&self.path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        match serde_json::from_slice(&bytes) {
            Ok(value) => Ok(Some(value)),
            Err(error) => {
                self.put_aside(&error);
                Ok(None)
            }
        }
    }

    /// Replaces the file atomically and returns when it is on the disk. Returns `false` if another process holds the
    /// lock.
    ///
    /// # Errors
    /// Returns an error if the file cannot be written.
    pub fn write(&mut self, value: &impl Serialize) -> io::Result<bool> {
        if !self.lock()? {
            return Ok(false);
        }
        private::replace(&self.path, &serde_json::to_vec(value)?)?;
        Ok(true)
    }

    fn put_aside(&self, error: &serde_json::Error) {
        let aside = private::with_ending(&self.path, ".unreadable");
        let moved = self.is_locked() && std::fs::rename(&self.path, &aside).is_ok();
        let file = self.path.display();
        tracing::error!(%error, %file, moved, "the state file is damaged and was set aside; counts start from zero");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAME: &str = "state.json";

    #[test]
    fn one_process_writes_and_another_takes_over() {
        let folder = tempfile::tempdir().expect("a folder");
        let folder = folder.path().join("deep/state");
        let mut first = StateFile::open(&folder, NAME).expect("opens");
        let mut second = StateFile::open(&folder, NAME).expect("opens");
        assert!(first.write(&[1]).expect("written"));
        assert!(!second.write(&[2]).expect("the other's"));
        assert_eq!(second.read::<Vec<u8>>().expect("read"), Some(vec![1]));
        drop(first);
        assert!(second.write(&[2]).expect("ours now"));
        assert_eq!(second.read::<Vec<u8>>().expect("read"), Some(vec![2]));
    }

    #[test]
    fn a_check_says_what_opening_would_and_leaves_nothing_behind() {
        let folder = tempfile::tempdir().expect("a folder");
        let listed = |path: &Path| std::fs::read_dir(path).expect("a folder").count();
        let deep = folder.path().join("deep/state");
        StateFile::check(&deep, NAME).expect("it could be made");
        assert_eq!(listed(folder.path()), 0);
        let file = folder.path().join("file");
        std::fs::write(&file, "").expect("written");
        for folder in [&file, &file.join("state")] {
            let (check, open) = (
                StateFile::check(folder, NAME),
                StateFile::open(folder, NAME),
            );
            let open = open.expect_err("no folder").kind();
            assert_eq!(check.expect_err("no folder").kind(), open, "{folder:?}");
        }
        let mut open = StateFile::open(&deep, NAME).expect("opens");
        StateFile::check(&deep, NAME).expect("another process has it");
        assert_eq!(listed(&deep), 1, "the lock");
        assert!(open.write(&[1]).expect("written"), "the lock is ours still");
        let unreadable = "spent.json";
        std::fs::create_dir(deep.join(unreadable)).expect("made");
        StateFile::check(&deep, unreadable).expect_err("no file");
    }

    #[test]
    fn a_damaged_file_is_put_aside_by_the_process_that_may_write() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join(NAME);
        let first = StateFile::open(folder.path(), NAME).expect("opens");
        let second = StateFile::open(folder.path(), NAME).expect("opens");
        std::fs::write(&path, "[1,").expect("written");
        assert_eq!(second.read::<Vec<u8>>().expect("read"), None);
        assert!(path.exists(), "it is the other's");
        assert_eq!(first.read::<Vec<u8>>().expect("read"), None);
        assert!(!path.exists());
        let aside = std::fs::read(folder.path().join("state.json.unreadable"));
        assert_eq!(aside.expect("put aside"), b"[1,");
    }

    #[cfg(unix)]
    #[test]
    fn only_the_owner_may_read_it_and_a_link_is_not_followed() {
        use std::os::unix::fs::{PermissionsExt, symlink};
        let folder = tempfile::tempdir().expect("a folder");
        let elsewhere = folder.path().join("elsewhere");
        std::fs::write(&elsewhere, "theirs").expect("written");
        symlink(&elsewhere, folder.path().join("state.json.new")).expect("a link");
        let mut file = StateFile::open(folder.path(), NAME).expect("opens");
        file.write(&[1]).expect("written");
        assert_eq!(std::fs::read(&elsewhere).expect("read"), b"theirs");
        for name in [NAME, "state.lock"] {
            let file = std::fs::metadata(folder.path().join(name)).expect("a file");
            assert_eq!(file.permissions().mode() & 0o777, 0o600, "{name}");
        }
    }
}
