//! The bytes to send: PDUs, and among them the data of reads, each in the buffer that the device
//! has filled. No data is copied, and no buffer is zeroed before the device fills it.

use std::io::IoSlice;

use zonal::budget::Buffer;

use super::pdu::{self, ConnectionParams};

/// PDUs that are collected.
#[derive(Default)]
pub(super) struct Output {
    /// All but the data.
    pub(super) pdus: Vec<u8>,
    /// Data, each with the byte of `pdus` in front of which it is sent. In this order.
    data: Vec<(usize, Buffer)>,
    /// Bytes of those buffers.
    data_bytes: usize,
}

impl Output {
    /// Bytes of memory that it takes.
    pub(super) fn bytes(&self) -> usize {
        self.pdus.len() + self.data_bytes
    }

    /// Adds a C2HData PDU with all data of a command.
    pub(super) fn add_data(
        &mut self,
        command: u16,
        flags: u8,
        data: Buffer,
        params: ConnectionParams,
    ) {
        let at = pdu::put_data(&mut self.pdus, command, flags, data.data(), params);
        self.data_bytes += Buffer::size(data.data().len());
        self.data.push((at, data));
    }

    /// All bytes, in the order of sending.
    pub(super) fn slices(&self) -> Vec<IoSlice<'_>> {
        let mut slices = Vec::with_capacity(2 * self.data.len() + 1);
        let mut sent = 0;
        for (at, data) in &self.data {
            slices.push(IoSlice::new(&self.pdus[sent..*at]));
            slices.push(IoSlice::new(data.data()));
            sent = *at;
        }
        slices.push(IoSlice::new(&self.pdus[sent..]));
        slices
    }

    /// Forgets the sent bytes.
    pub(super) fn clear(&mut self) {
        self.pdus.clear();
        self.data.clear();
        self.data_bytes = 0;
    }
}
