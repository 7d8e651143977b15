//! Files with data about calls, which only their owner may read.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::Path;

/// The beginning of the name of what [`check_folder`] makes and removes.
const PROBE: &str = ".tokengauge-check-";

/// Creates a file, or empties the one that is there, which keeps its mode.
pub fn create(path: &Path) -> io::Result<File> {
    private(OpenOptions::new().write(true).truncate(true)).open(path)
}

/// Opens a file to append to; makes it where it is missing.
pub fn append(path: &Path) -> io::Result<File> {
    private(OpenOptions::new().append(true)).open(path)
}

pub fn append_and_read(path: &Path) -> io::Result<File> {
    private(OpenOptions::new().append(true).read(true)).open(path)
}

/// Whether [`append`] would open a file. Leaves nothing behind. Check the folder first: see [`check_folder`].
///
/// # Errors
/// Why it would not.
pub fn check_append(path: &Path) -> io::Result<()> {
    match OpenOptions::new().append(true).open(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Whether a folder is there, or could be made with those above it, and files could be made in it. Leaves nothing behind.
///
/// # Errors
/// Why not.
pub fn check_folder(folder: &Path) -> io::Result<()> {
    let there = |path: &&Path| path.symlink_metadata().is_ok() || *path == Path::new("");
    let existing = folder.ancestors().find(there).unwrap_or(Path::new(""));
    let name = format!("{PROBE}{}", std::process::id());
    if existing == folder {
        // Fails if it is not a folder.
        std::fs::create_dir_all(folder)?;
        let probe = folder.join(name);
        private(OpenOptions::new().write(true).create_new(true)).open(&probe)?;
        return std::fs::remove_file(probe);
    }
    let probe = existing.join(name);
    std::fs::create_dir(&probe)?;
    std::fs::remove_dir(probe)
}

/// Replaces a file atomically, and returns when it is on the disk: after a crash there is
/// either the old file or the new one.
pub fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let fresh = with_ending(path, ".new");
    match std::fs::remove_file(&fresh) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    // `create_new`, so that the mode is ours and no existing link is followed.
    let mut file = private(OpenOptions::new().write(true).create_new(true)).open(&fresh)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    std::fs::rename(&fresh, path)?;
    // The rename itself must reach the disk too.
    let folder = path.parent().filter(|folder| *folder != Path::new(""));
    File::open(folder.unwrap_or(Path::new(".")))?.sync_all()
}

pub fn with_ending(path: &Path, ending: &str) -> std::path::PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(ending);
    name.into()
}

fn private(options: &mut OpenOptions) -> &mut OpenOptions {
    options.create(true);
    #[cfg(unix)]
    {
        use std::os::unix::fs::OpenOptionsExt;
        options.mode(0o600);
    }
    options
}
