//! A process that performs calls, and the end of it that the test holds.

use std::env;
use std::io::{BufRead, BufReader, Write, stdin};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use rustix::fs::{Gid, Mode, Uid};
use rustix::thread::{set_thread_groups, set_thread_res_gid, set_thread_res_uid};

use super::call::{Answer, Call, Process};

const PLACE: &str = "ZONAL_TEST_ACTOR_PLACE";
const USER: &str = "ZONAL_TEST_ACTOR_USER";
const GROUP: &str = "ZONAL_TEST_ACTOR_GROUP";

/// Begins each line that is an answer; libtest prints others.
const ANSWER: &str = "ANSWER ";

/// A process.
pub(crate) struct Actor {
    child: Child,
    calls: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
}

impl Actor {
    /// Starts one in a directory, with the rights of a user and a group.
    pub(crate) fn start(place: &Path, (user, group): (u32, u32)) -> Self {
        let mut child = Command::new(env::current_exe().unwrap())
            .args(["differential::actor", "--exact", "--ignored", "--nocapture"])
            .env(PLACE, place)
            .env(USER, user.to_string())
            .env(GROUP, group.to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let calls = child.stdin.take();
        let answers = BufReader::new(child.stdout.take().unwrap());
        Actor { child, calls, answers }
    }

    /// Has it perform a call.
    pub(crate) fn perform(&mut self, call: &Call) -> Answer {
        let line = serde_json::to_string(call).unwrap();
        writeln!(self.calls.as_mut().unwrap(), "{line}").unwrap();
        loop {
            let mut line = String::new();
            assert_ne!(self.answers.read_line(&mut line).unwrap(), 0, "a process ended early");
            if let Some((_, answer)) = line.split_once(ANSWER) {
                return serde_json::from_str(answer).unwrap();
            }
        }
    }
}

impl Drop for Actor {
    fn drop(&mut self) {
        // The end of its input ends it.
        self.calls = None;
        let _ = self.child.wait();
    }
}

/// The body of the process's test.
pub(crate) fn body() {
    // Run as a test of its own, it has nothing to do.
    let Some(place) = env::var_os(PLACE) else { return };
    env::set_current_dir(place).unwrap();
    let number = |name| env::var(name).unwrap().parse::<u32>().unwrap();
    let (user, group) = (Uid::from_raw(number(USER)), Gid::from_raw(number(GROUP)));
    // This thread makes all the calls, so it alone changes its user.
    set_thread_groups(&[]).unwrap();
    set_thread_res_gid(group, group, group).unwrap();
    set_thread_res_uid(user, user, user).unwrap();
    rustix::process::umask(Mode::empty());
    let mut process = Process::default();
    for line in stdin().lines() {
        let answer = process.perform(&serde_json::from_str(&line.unwrap()).unwrap());
        println!("{ANSWER}{}", serde_json::to_string(&answer).unwrap());
    }
}
