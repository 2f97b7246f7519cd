//! `zonal top` and `zonal stats --watch` on a real terminal: tmux draws it, and the test sends keys
//! and reads the screen. Skipped where tmux is missing; tests with a mount also where nothing can
//! be mounted.
#![expect(clippy::unwrap_used, clippy::print_stdout, reason = "a test")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use zonal::wait::wait_until;

/// Most looks at a screen until it shows the expected text: each look starts a process, which takes
/// longer on a busy machine, as the drawing does.
const LOOKS_MAX: u32 = 4000;

/// A terminal of its own, with a shell, and a directory for drives.
struct Terminal {
    folder: tempfile::TempDir,
    is_mounted: bool,
}

impl Terminal {
    /// `None`, with a word why, where there is no tmux.
    fn new((columns, rows): (u16, u16), environment: &[&str]) -> Option<Self> {
        if Command::new("tmux").arg("-V").output().is_err() {
            println!("SKIP: tmux is not installed");
            return None;
        }
        let terminal = Self { folder: tempfile::tempdir().unwrap(), is_mounted: false };
        let (columns, rows) = (columns.to_string(), rows.to_string());
        // A terminal without the user's settings, and without a prompt of the user's shell.
        let shell = format!("exec env PS1='% ' {} sh", environment.join(" "));
        let arguments =
            ["-f", "/dev/null", "new-session", "-d", "-x", &columns, "-y", &rows, &shell];
        let output = terminal.tmux(&arguments);
        assert!(output.status.success(), "{output:?}");
        terminal.wait_for("%");
        Some(terminal)
    }

    fn tmux(&self, arguments: &[&str]) -> Output {
        let socket = self.folder.path().join("tmux");
        let mut command = Command::new("tmux");
        command.arg("-S").arg(socket).args(arguments).stdin(Stdio::null());
        command.env_remove("TMUX").env("LC_ALL", "C.UTF-8").env("SHELL", "/bin/sh");
        command.output().unwrap()
    }

    fn keys(&self, keys: &[&str]) {
        let output = self.tmux(&[&["send-keys"], keys].concat());
        assert!(output.status.success(), "{output:?}");
    }

    /// Types a line for the shell.
    fn line(&self, line: &str) {
        self.keys(&["-l", line]);
        self.keys(&["Enter"]);
    }

    fn screen(&self) -> String {
        String::from_utf8(self.tmux(&["capture-pane", "-p"]).stdout).unwrap()
    }

    /// The screen with its colours, as escape sequences.
    fn colours(&self) -> String {
        String::from_utf8(self.tmux(&["capture-pane", "-e", "-p"]).stdout).unwrap()
    }

    /// The screen once it shows `text`.
    fn wait_for(&self, text: &str) -> String {
        self.wait_until(text, |screen| screen.contains(text))
    }

    /// A terminal draws a screen piece by piece, so one text that shows says nothing about another.
    fn wait_for_all(&self, texts: &[&str]) -> String {
        let is_complete = |screen: &str| texts.iter().all(|text| screen.contains(text));
        self.wait_until(&texts.join(", "), is_complete)
    }

    fn wait_until(&self, what: &str, shows: impl Fn(&str) -> bool) -> String {
        let (mut looks, mut screen) = (0, String::new());
        wait_until(|| {
            screen = self.screen();
            looks += 1;
            assert!(looks <= LOOKS_MAX, "no {what} on\n{screen}");
            shows(&screen)
        });
        screen
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn drive(&self) -> String {
        let drive = text(&self.path("drive.zns"));
        zonal(&["create", &drive, "--zones", "60", "--zone-size", "1MiB"]);
        drive
    }

    /// A Furrow with a few files; `None`, with a word why, where nothing can be mounted.
    fn mount(&mut self) -> Option<String> {
        if !rustix::process::geteuid().is_root() || fs::File::open("/dev/fuse").is_err() {
            println!("SKIP: mounting needs root and /dev/fuse");
            return None;
        }
        let (drive, dir, log) = (self.drive(), self.path("mnt"), self.path("log"));
        fs::create_dir(&dir).unwrap();
        zonal(&["mkfs", &drive]);
        zonal(&["mount", &drive, &text(&dir), "--log", &text(&log)]);
        self.is_mounted = true;
        for file in 0..6 {
            fs::write(dir.join(format!("file-{file}")), vec![file; 700_000]).unwrap();
        }
        Some(text(&dir))
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        self.tmux(&["kill-server"]);
        if self.is_mounted {
            let output = run(&["umount", &text(&self.path("mnt"))]);
            assert!(output.status.success() || std::thread::panicking(), "{output:?}");
        }
    }
}

fn text(path: &Path) -> String {
    path.to_str().unwrap().to_owned()
}

fn program() -> &'static str {
    env!("CARGO_BIN_EXE_zonal")
}

fn run(arguments: &[&str]) -> Output {
    Command::new(program()).args(arguments).stdin(Stdio::null()).output().unwrap()
}

fn zonal(arguments: &[&str]) {
    let output = run(arguments);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "zonal {arguments:?}: {errors}");
}

#[test]
fn top_ends_with_its_terminal() {
    let Some(terminal) = Terminal::new((80, 24), &[]) else { return };
    let drive = terminal.drive();
    // The command replaces the shell, so the terminal belongs to it.
    terminal.line(&format!("exec {} top {drive}", env!("CARGO_BIN_EXE_zonal")));
    terminal.wait_for("zones");
    let pid = terminal.tmux(&["display-message", "-p", "#{pane_pid}"]).stdout;
    let process = Path::new("/proc").join(String::from_utf8(pid).unwrap().trim());
    assert!(process.exists());
    terminal.tmux(&["kill-server"]);
    // A process that has ended, but whose parent has not waited for it, has no program.
    wait_until(|| fs::read_link(process.join("exe")).is_err());
}

#[test]
fn top_of_mount_is_live_and_takes_keys() {
    let Some(mut terminal) = Terminal::new((80, 24), &["TERM=tmux-256color"]) else { return };
    let Some(dir) = terminal.mount() else { return };
    terminal.line(&format!("{} top {dir} --interval 0.1", program()));
    terminal.wait_for_all(&[
        "zonal top",
        "furrow, read-write",
        "60 zones",
        "Space",
        "Written",
        "Latency",
        "write",
        "q quit",
    ]);
    assert!(terminal.colours().contains("\x1b[38;5;4m"), "zones with data are blue");
    // Writes meanwhile show.
    fs::write(Path::new(&dir).join("more"), vec![7; 3 << 20]).unwrap();
    fs::File::open(Path::new(&dir).join("more")).unwrap().sync_all().unwrap();
    terminal.wait_for("fsync");
    terminal.keys(&["?"]);
    terminal.wait_for("colour or letters");
    terminal.keys(&["Escape"]);
    terminal.wait_until("end of the help", |screen| !screen.contains("colour or letters"));
    terminal.keys(&["Space"]);
    terminal.wait_for("PAUSED");
    terminal.keys(&["Space"]);
    terminal.keys(&["+"]);
    terminal.wait_for("every 0.2 s");
    terminal.keys(&["c"]);
    terminal.wait_for("0-#");
    terminal.tmux(&["resize-window", "-x", "132", "-y", "40"]);
    terminal.wait_for("Zones by share in use");
    terminal.tmux(&["resize-window", "-x", "40", "-y", "10"]);
    terminal
        .wait_until("small screen", |screen| screen.contains("user") && !screen.contains("Space"));
    terminal.keys(&["q"]);
    // The shell's screen is back, and typed text shows again. Before the prompt, keys still go to
    // `top`.
    terminal.wait_until("prompt", |screen| screen.trim_end().ends_with('%'));
    terminal.line("stty -a | grep -o ' echo ' && echo code $?");
    let screen = terminal.wait_for("code 0");
    assert!(!screen.contains("q quit"), "{screen}");
}

#[test]
fn top_shows_unmount_and_restores_terminal_on_signal() {
    let Some(mut terminal) = Terminal::new((80, 24), &["NO_COLOR=1"]) else { return };
    let Some(dir) = terminal.mount() else { return };
    terminal.line(&format!("{} top {dir} -i 0.1; echo ended $?", program()));
    terminal.wait_for("q quit");
    assert!(!terminal.colours().contains("\x1b[38;5;"), "NO_COLOR asks for none");
    zonal(&["umount", &dir]);
    terminal.is_mounted = false;
    terminal.wait_for("not a mount served by zonal");
    let pane = String::from_utf8(terminal.tmux(&["display-message", "-p", "#{pane_pid}"]).stdout);
    let children = Command::new("pgrep").args(["-P", pane.unwrap().trim()]).output().unwrap();
    let child = String::from_utf8(children.stdout).unwrap();
    assert!(Command::new("kill").arg(child.trim()).status().unwrap().success());
    let screen = terminal.wait_for("ended 0");
    assert!(!screen.contains("q quit"), "{screen}");
}

#[test]
fn top_of_drive_shows_writes_of_other_process() {
    let Some(terminal) = Terminal::new((100, 30), &[]) else { return };
    let drive = terminal.drive();
    terminal.line(&format!("{} top {drive} --interval 0.1", program()));
    terminal.wait_for_all(&["60 zones", "0 open", "60 empty"]);
    let data = terminal.path("data");
    fs::write(&data, vec![1; 1 << 16]).unwrap();
    zonal(&["append", &drive, "--zone", "7", "--input", &text(&data)]);
    terminal.wait_for("1 implicit-open");
    zonal(&["zone", "offline", &drive, "9"]);
    terminal.wait_for("1 offline");
    terminal.keys(&["C-c"]);
    terminal.wait_until("shell", |screen| !screen.contains("q quit"));
}

#[test]
fn top_without_terminal_says_what_to_do() {
    let Some(terminal) = Terminal::new((100, 24), &["TERM=dumb"]) else { return };
    let drive = terminal.drive();
    terminal.line(&format!("{} top {drive}; echo code $?", program()));
    let screen = terminal.wait_for("code 1");
    assert!(screen.contains("needs a terminal"), "{screen}");
    let output = run(&["top", &drive]);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && errors.contains("needs a terminal"), "{errors}");
    terminal.line(&format!("TERM=tmux {} top {drive} --interval 0; echo code $?", program()));
    terminal.wait_for("is not from 0.1 to 60 seconds");
}

#[test]
fn stats_watch_reprints_in_place() {
    let Some(mut terminal) = Terminal::new((80, 50), &["TERM=tmux-256color"]) else { return };
    let Some(dir) = terminal.mount() else { return };
    terminal.line(&format!("{} stats {dir} --watch 0.2", program()));
    let screen = terminal.wait_for("now, per second");
    assert!(screen.starts_with("furrow, read-write"), "from the top:\n{screen}");
    assert_eq!(screen.matches("reclaimable").count(), 1, "in place:\n{screen}");
    assert!(screen.contains("every 0.2 s, Ctrl-C ends"), "{screen}");
    // A smaller terminal shows the lines that fit, and says how many do not.
    terminal.tmux(&["resize-window", "-x", "60", "-y", "12"]);
    terminal.wait_for("lines more than fit");
    terminal.keys(&["C-c"]);
    terminal.line("echo back");
    terminal.wait_for("back");
}

/// Without a terminal, looks follow each other.
#[test]
fn stats_watch_prints_json_lines_for_programs() {
    use std::io::{BufRead, BufReader};

    let Some(mut terminal) = Terminal::new((80, 24), &[]) else { return };
    let Some(dir) = terminal.mount() else { return };
    let mut child = Command::new(program())
        .args(["stats", &dir, "--json", "--watch", "0.1"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines().take(3);
    let looks: Vec<String> = lines.map(|line| line.unwrap()).collect();
    // The command ends by itself after its reader has gone.
    child.wait().unwrap();
    assert_eq!(looks.len(), 3);
    assert!(looks.iter().all(|line| line.starts_with('{') && line.contains("\"live\":{")));
}
