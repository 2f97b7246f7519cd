//! Requests of a batch, side by side.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::Ordering;
use std::sync::{PoisonError, RwLockReadGuard, RwLockWriteGuard};

use zonal::nvme::command::Opcode;
use zonal::{Io, Lba, LbaCount, Op, ZoneId};

use super::PassthroughDrive;
use super::command::{Command, Failure};
use crate::Result;
use crate::by_zone::{self, Access, WriteRange};
use crate::data::Data;
use crate::rounds::changed_zone;

/// The turn of a zone, held while a round changes it.
enum ZoneTurn<'a> {
    Write { _held: RwLockWriteGuard<'a, ()> },
    Append { _held: RwLockReadGuard<'a, ()> },
}

/// The operation of a request's commands.
#[derive(Clone, Copy)]
enum CommandPlan {
    Read(Lba),
    Write(Lba, WriteRange),
    Append(ZoneId, LbaCount),
}

/// A request, and the range of its commands.
struct PlannedCommands<'r> {
    result: &'r mut Option<Result<Lba>>,
    plan: CommandPlan,
    commands: Range<usize>,
}

impl PassthroughDrive {
    /// Performs a round. Leaves a request without a result if it is better performed alone, and a
    /// read that fails.
    pub(super) fn side_by_side(&self, round: &mut [&mut Io<'_>]) {
        let _turns = self.turns(round);
        let mut commands = Vec::new();
        let mut planned = Vec::new();
        for io in &mut *round {
            let Io { op, result } = &mut **io;
            let first = commands.len();
            match self.plan(op, &mut commands) {
                Ok(Some(plan)) => {
                    planned.push(PlannedCommands { result, plan, commands: first..commands.len() });
                }
                // Performed alone, it fails in the same way.
                Ok(None) | Err(_) => commands.truncate(first),
            }
        }
        let mut results = self.channel.run_all(&self.file, &mut commands).into_iter();
        for PlannedCommands { result, plan, commands: range } in planned {
            let done: Vec<_> = results.by_ref().take(range.len()).collect();
            let failed = done.iter().position(std::result::Result::is_err).unwrap_or(0);
            let done: std::result::Result<Vec<u64>, Failure> = done.into_iter().collect();
            *result = self.outcome(plan, &commands[range.start + failed], done);
        }
    }

    /// The result of a request whose commands gave `done`; `command` is the first that failed.
    /// `None` if the request is to be performed alone.
    fn outcome(
        &self,
        plan: CommandPlan,
        command: &Command<'_>,
        done: std::result::Result<Vec<u64>, Failure>,
    ) -> Option<Result<Lba>> {
        match (done, plan) {
            (Ok(_), CommandPlan::Read(lba)) => Some(Ok(lba)),
            (Err(_), CommandPlan::Read(_)) => None,
            (Ok(_), CommandPlan::Write(lba, WriteRange { zone, offset, blocks })) => {
                let state = self.state(zone);
                Some(state.map(|state| {
                    state.written.store((offset + blocks).get(), Ordering::Release);
                    lba
                }))
            }
            (Ok(at), CommandPlan::Append(zone, blocks)) => {
                let at = at.last().copied().unwrap_or(u64::MAX);
                Some(self.appended(zone, Lba::new(at), blocks))
            }
            (
                Err(why),
                CommandPlan::Write(_, WriteRange { zone, .. }) | CommandPlan::Append(zone, _),
            ) => Some(Err(self.explain_command(zone, command, Access::Write, why))),
        }
    }

    /// Takes the turns of all zones that a round changes, in the order of zones, so that two rounds
    /// do not wait for each other.
    fn turns(&self, round: &[&mut Io<'_>]) -> Vec<ZoneTurn<'_>> {
        let changes: BTreeMap<ZoneId, bool> = round
            .iter()
            .filter_map(|io| {
                let zone = changed_zone(&self.geometry, &io.op)?;
                Some((zone, matches!(io.op, Op::Append { .. })))
            })
            .collect();
        let turn = |(zone, appends): (ZoneId, bool)| {
            let turn = &self.zones.get(zone.index())?.turn;
            Some(if appends {
                ZoneTurn::Append { _held: turn.read().unwrap_or_else(PoisonError::into_inner) }
            } else {
                ZoneTurn::Write { _held: turn.write().unwrap_or_else(PoisonError::into_inner) }
            })
        };
        changes.into_iter().filter_map(turn).collect()
    }

    /// Adds the commands of a request; `None` if it is better performed alone.
    fn plan<'a>(
        &self,
        op: &'a mut Op<'_>,
        commands: &mut Vec<Command<'a>>,
    ) -> Result<Option<CommandPlan>> {
        let most = self.byte_len(self.limits.transfer);
        match op {
            Op::Read { lba, buffer } => {
                let blocks = self.geometry.blocks_at(*lba, buffer.len())?;
                if blocks == LbaCount::ZERO {
                    return Ok(None);
                }
                let (zone, offset) = self.geometry.locate(*lba);
                if (offset + blocks).get() > self.state(zone)?.written.load(Ordering::Acquire) {
                    return Ok(None);
                }
                let pieces = buffer.chunks_mut(most).map(Data::Fill);
                self.add_commands(commands, *lba, pieces, Access::Read)?;
                Ok(Some(CommandPlan::Read(*lba)))
            }
            Op::Write { lba, data } => {
                self.mode.check_writable()?;
                let Some(range) = WriteRange::of_write(&self.geometry, *lba, data.len())? else {
                    return Ok(None);
                };
                if self.state(range.zone)?.written.load(Ordering::Acquire) != range.offset.get() {
                    return Ok(None);
                }
                let pieces = data.chunks(most).map(Data::Take);
                self.add_commands(commands, *lba, pieces, Access::Write)?;
                Ok(Some(CommandPlan::Write(*lba, range)))
            }
            Op::Append { zone, data } => {
                self.mode.check_writable()?;
                self.state(*zone)?;
                let blocks = by_zone::append_blocks(&self.geometry, data.len())?;
                if blocks == LbaCount::ZERO {
                    return Ok(None);
                }
                let start = self.geometry.zone_start(*zone);
                let entry = self.blocks(Opcode::ZONE_APPEND, start, data.len())?;
                commands.push(Command::new(entry, Data::Take(data)));
                Ok(Some(CommandPlan::Append(*zone, blocks)))
            }
            Op::Flush => Ok(None),
        }
    }
}
