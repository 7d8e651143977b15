//! Files with data about calls, readable only by their owner.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::Path;

/// Prefix of the temporary files that [`check_folder`] creates and removes.
const PROBE: &str = ".tokengauge-check-";

/// Creates a file or truncates an existing one. An existing file keeps its mode.
pub fn create(path: &Path) -> io::Result<File> {
    private(OpenOptions::new().write(true).truncate(true)).open(path)
}

/// Opens a file for appending and creates it if it is missing.
pub fn append(path: &Path) -> io::Result<File> {
    private(OpenOptions::new().append(true)).open(path)
}

pub fn append_and_read(path: &Path) -> io::Result<File> {
    private(OpenOptions::new().append(true).read(true)).open(path)
}

/// Checks that [`append`] could open a file, without creating it. Call [`check_folder`] on its folder first.
///
/// # Errors
/// Why the file could not be opened.
pub fn check_append(path: &Path) -> io::Result<()> {
    match OpenOptions::new().append(true).open(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Checks that a folder exists or could be created, and that files could be created in it. Leaves no file or folder
/// behind.
///
/// # Errors
/// Why not.
pub fn check_folder(folder: &Path) -> io::Result<()> {
    let there = |path: &&Path| path.symlink_metadata().is_ok() || *path == Path::new("");
    let existing = folder.ancestors().find(there).unwrap_or(Path::new(""));
    let name = format!("{PROBE}{}", std::process::id());
    if existing == folder {
        // Fails if the path is not a folder.
        std::fs::create_dir_all(folder)?;
        let probe = folder.join(name);
        private(OpenOptions::new().write(true).create_new(true)).open(&probe)?;
        return std::fs::remove_file(probe);
    }
    let probe = existing.join(name);
    std::fs::create_dir(&probe)?;
    std::fs::remove_dir(probe)
}

/// Replaces a file atomically and returns when it is on the disk. After a crash, the file has either its old or its new
/// content.
pub fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let fresh = with_ending(path, ".new");
    match std::fs::remove_file(&fresh) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    // `create_new` makes sure that the mode is ours and that no existing symbolic link is followed.
    let mut file = private(OpenOptions::new().write(true).create_new(true)).open(&fresh)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    std::fs::rename(&fresh, path)?;
    // The rename itself must also reach the disk.
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
