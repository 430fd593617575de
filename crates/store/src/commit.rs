//! From changes to promises: device writes, the device's flush, the batch, the database's flush, and what follows.

use crate::buf::zeros;
use crate::deferred::{Batch, Record};
use crate::queue::Job;
use crate::onode::{BLOCK, Block};
use crate::store::{Flush, FlushFor, IoKind};
use crate::txc::{Change, Pend, Source, Txc, TxcState, compose};
use crate::*;
use bytes::Bytes;
use qos::Class;
use std::collections::BTreeMap;
use std::ops::Bound;
use std::time::Duration;
use types::Errno;

/// For so long after a write through the log it is taken that more of them come.
const PRESSING: Duration = Duration::from_secs(1);
/// How old what is known of the file system beneath may be: to ask takes two system calls, and nearly every write frees something.
const MOMENT: Duration = Duration::from_millis(10);

impl<D: BlockDev, K: Kv> Store<D, K> {
    /// Sends a planned transaction on its way.
    pub(crate) fn start_txc(&mut self, number: u64, txc: Txc) {
        let lane = self.lane(txc.coll);
        for other in &txc.others {
            // What a collection that ends, or a removed one of that name, still has to do comes first.
            let theirs = self.lane(*other);
            if theirs != lane {
                let before = self.queues.remove(&theirs).unwrap_or_default();
                self.queues.entry(lane).or_default().extend(before);
                self.lanes.values_mut().filter(|l| **l == theirs).for_each(|l| *l = lane);
                self.lanes.insert(theirs, lane);
            }
            if *other != lane {
                self.lanes.insert(*other, lane);
            }
        }
        self.txcs.insert(number, txc);
        self.queues.entry(lane).or_default().push_back(number);
        self.advance(number);
    }

    /// Moves a transaction as far as it can go.
    fn advance(&mut self, number: u64) {
        let Some(txc) = self.txcs.get_mut(&number) else { return };
        let state = match (txc.pending, txc.ios, txc.unflushed) {
            (0, 0, false) => TxcState::IoDone,
            (0, ..) => TxcState::AioWait,
            _ => TxcState::Prepare,
        };
        txc.enter(state, self.now, &mut self.perf);
        let coll = txc.coll;
        if txc.state == TxcState::IoDone {
            self.queue_ready(self.lane(coll));
        } else if txc.state == TxcState::AioWait && txc.ios == 0 {
            // All its writes were answered while it was still preparing.
            self.dev_waiting.push(FlushFor::Txc(number));
        }
    }

    /// The collection in whose queue its transactions are.
    pub(crate) fn lane(&self, coll: types::ShardPgId) -> types::ShardPgId {
        self.lanes.get(&coll).copied().unwrap_or(coll)
    }

    fn close_queue(&mut self, coll: types::ShardPgId) {
        self.queues.remove(&coll);
        self.lanes.retain(|_, lane| *lane != coll);
    }

    /// Puts what is ready at the head of a collection's queue into the batch.
    fn queue_ready(&mut self, coll: types::ShardPgId) {
        while let Some(queue) = self.queues.get_mut(&coll) {
            let Some(&number) = queue.front() else {
                return self.close_queue(coll);
            };
            let Some(txc) = self.txcs.get_mut(&number).filter(|t| t.state == TxcState::IoDone) else { return };
            if !txc.deferred.is_empty() && self.deferred.total_bytes() >= self.config.deferred_bytes_max {
                txc.throttled.get_or_insert(self.now);
                self.deferred.waits = true;
                return;
            }
            queue.pop_front();
            if queue.is_empty() {
                self.close_queue(coll);
            }
            if self.queue_txc(number).is_err() {
                return;
            }
        }
    }

    /// Puts a transaction's changes into the batch.
    fn queue_txc(&mut self, number: u64) -> Result<(), Errno> {
        let Some(mut txc) = self.txcs.remove(&number) else { return Ok(()) };
        if txc.changes.iter().any(|c| matches!(c, Change::CopyOmap { .. })) {
            self.apply_batch()?;
            self.queue_with_copies(&mut txc)?;
        } else {
            for change in txc.changes.drain(..) {
                change.settle_into(&mut self.batch);
            }
        }
        self.queue_deferred(&mut txc);
        for key in txc.keys.drain(..) {
            if let Some(o) = self.onodes.peek_mut(&key) {
                o.pins -= 1;
            }
        }
        if txc.extended {
            self.note_format();
        }
        txc.throttled_for = txc.throttled.map_or(Duration::ZERO, |since| self.now - since);
        txc.enter(TxcState::KvQueued, self.now, &mut self.perf);
        self.txcs.insert(number, txc);
        self.queued.push(number);
        self.unblock_reads();
        Ok(())
    }

    /// As the database is now, everything earlier is applied: copies of omaps are made from it and from what this
    /// transaction itself has changed before.
    fn queue_with_copies(&mut self, txc: &mut Txc) -> Result<(), Errno> {
        let mut own = KvBatch::default();
        for change in txc.changes.drain(..) {
            let Change::CopyOmap { from, to } = change else {
                change.settle_into(&mut own);
                continue;
            };
            let (first, end) = (key::omap_header(from), key::omap_end(from));
            let found = self.kv.scan(Bound::Included(&first), Bound::Excluded(&end), usize::MAX);
            let mut pairs: BTreeMap<Bytes, Bytes> = self.kv_ok(found)?.into_iter().collect();
            own.ops.iter().for_each(|op| overlay(&mut pairs, op, &first, &end));
            let place = key::omap_header(to);
            for (k, v) in pairs {
                // The last byte of the prefix tells header and pairs apart: it stays.
                let mut copy = place[..place.len() - 1].to_vec();
                copy.extend_from_slice(&k[place.len() - 1..]);
                own.put(copy, v);
            }
        }
        self.batch.append(own);
        Ok(())
    }

    fn queue_deferred(&mut self, txc: &mut Txc) {
        if txc.deferred.is_empty() {
            return;
        }
        self.deferred.written_at = Some(self.now);
        let seq = self.deferred.next_seq;
        self.deferred.next_seq += 1;
        txc.deferred_seq = seq;
        let blocks = txc.deferred.iter().map(|d| (d.phys, d.content.bytes()));
        let (record, value) = Record::build(&mut self.deferred.pieces, seq, txc.class, blocks);
        for (written, (phys, data)) in txc.deferred.iter().zip(&record.blocks) {
            self.deferred.fill(*phys, written.write, data);
        }
        self.batch.put(key::deferred(seq), value);
        self.perf.deferred(record.bytes());
        self.deferred.push(record);
        txc.deferred = Vec::new();
    }

    /// Applies this turn's batch: it is visible, and covered by the next flush.
    pub(crate) fn apply_batch(&mut self) -> Result<(), Errno> {
        if !self.batch.is_empty() {
            let applied = self.kv.apply(std::mem::take(&mut self.batch));
            self.kv_ok(applied)?;
        }
        for number in self.queued.drain(..) {
            if let Some(txc) = self.txcs.get_mut(&number) {
                txc.enter(TxcState::KvSubmitted, self.now, &mut self.perf);
            }
            self.applied.push(number);
        }
        Ok(())
    }

    /// The end of a turn: everything that can be started is.
    pub(crate) fn settle(&mut self) {
        if self.poisoned.is_some() {
            return;
        }
        self.start_deferred_batch();
        if self.apply_batch().is_err() {
            return;
        }
        if !self.applied.is_empty() {
            let id = self.io(IoKind::KvFlush);
            self.flushing.push_back(Flush { id, since: self.now, txcs: std::mem::take(&mut self.applied) });
            self.note_flush(id);
            self.kv.flush(id);
        }
        if self.dev_flushing.is_none() && !self.dev_waiting.is_empty() {
            self.dev_flushing = Some(std::mem::take(&mut self.dev_waiting));
            self.dev_flush_since = self.now;
            let id = self.io(IoKind::DevFlush);
            self.note_flush(id);
            self.dev.flush(id);
        }
        self.drive_device();
        self.fit_caches();
    }

    pub(crate) fn handle_txc_written(&mut self, number: u64, first: u64) {
        self.direct.remove(&first);
        let Some(txc) = self.txcs.get_mut(&number) else { return };
        txc.ios -= 1;
        if txc.ios == 0 && txc.pending == 0 {
            self.dev_waiting.push(FlushFor::Txc(number));
        }
    }

    pub(crate) fn handle_dev_flushed(&mut self) {
        self.perf.dev_flushed(self.now - self.dev_flush_since);
        for who in self.dev_flushing.take().unwrap_or_default() {
            match who {
                FlushFor::Txc(number) => {
                    if let Some(txc) = self.txcs.get_mut(&number) {
                        txc.unflushed = false;
                    }
                    self.advance(number);
                }
                FlushFor::Place(id) => self.handle_place_flushed(id),
                FlushFor::DeferredBatch => self.finish_deferred_batch(),
            }
        }
    }

    /// A flush covers all that was applied before it was asked for, so what older flushes were to cover too.
    pub(crate) fn handle_kv_flushed(&mut self, id: IoId) {
        let covered = self.flushing.partition_point(|older| older.id <= id);
        if let Some(last) = covered.checked_sub(1).and_then(|at| self.flushing.get(at)) {
            self.flush_took.learn(self.now - last.since);
            self.perf.kv_flushed(self.now - last.since);
        }
        let numbers: Vec<u64> = self.flushing.drain(..covered).flat_map(|flush| flush.txcs).collect();
        for number in numbers {
            let Some(mut txc) = self.txcs.remove(&number) else { continue };
            self.perf.left(txc.state, self.now - txc.since);
            self.perf.committed(self.now - txc.submitted, txc.throttled_for);
            self.deferred.committed = self.deferred.committed.max(txc.deferred_seq);
            let mut free = std::mem::take(&mut txc.freed);
            free.retain(|phys| !self.deferred.free(*phys));
            self.release(free);
            self.events.push_back(StoreEvent::Committed(txc.id));
        }
        self.start_deferred_batch();
    }

    /// Blocks that nothing refers to any more, nor will after a crash.
    pub(crate) fn release(&mut self, mut blocks: Vec<u64>) {
        for phys in &blocks {
            self.cache.forget(*phys);
            self.unverify(*phys);
            self.alloc.release(*phys);
        }
        if blocks.is_empty() || (!self.config.discard && !self.is_tight_beneath()) {
            return;
        }
        blocks.sort_unstable();
        for run in blocks.chunk_by(|a, b| a + 1 == *b) {
            self.dev.discard(run[0] * BLOCK, run.len() as u64 * BLOCK);
        }
    }

    /// True if the file system beneath a sparse file runs full: then what is freed here must be free there. As of a moment ago.
    fn is_tight_beneath(&mut self) -> bool {
        if let Some((looked, tight)) = self.tight_beneath
            && self.now - looked < MOMENT
        {
            return tight;
        }
        let tight = self.dev.room_beneath().is_some() && self.available() < self.total() / 4;
        self.tight_beneath = Some((self.now, tight));
        tight
    }

    /// Starts writing deferred blocks to their place, when there are enough to be worth a flush, or when what they hold is wanted.
    fn start_deferred_batch(&mut self) {
        let enough = self.config.deferred_batch_bytes.min(self.config.deferred_bytes_max);
        // One of which nothing is left to be written is over at once: no I/O will come to start the next.
        while self.may_start_batch() && (self.deferred.bytes >= enough || self.holds_what_is_wanted()) {
            self.write_deferred();
        }
    }

    fn may_start_batch(&self) -> bool {
        self.poisoned.is_none() && self.deferred.batch.is_none() && self.deferred.has_committed()
    }

    /// Starts writing deferred blocks that are durable in the log, if no batch is under way.
    pub fn write_deferred(&mut self) {
        if !self.may_start_batch() {
            return;
        }
        self.deferred.start_batch(self.config.deferred_batch_bytes, self.config.deferred_window_bytes);
        match self.deferred.batch.as_ref().is_none_or(Batch::is_written) {
            true => self.finish_deferred_batch(),
            false => self.drive_deferred_batch(),
        }
    }

    /// Goes on with the batch: little by little, for every flush has to wait for what the device has been given before.
    fn drive_deferred_batch(&mut self) {
        while let Some((class, first, list)) = self.deferred.batch.as_mut().and_then(|b| b.next_write(self.config.deferred_window_bytes)) {
            let id = self.io(IoKind::DeferredWrite { bytes: list.len() as u64 });
            self.want_later(class, id, Job::Write { off: first * BLOCK, data: list });
        }
    }

    /// True if somebody waits for room in the log, or will soon: it is nearly full, and somebody writes. Until then nobody waits for what is in it to
    /// reach its place, and whatever else the device is wanted for goes first.
    pub(crate) fn log_is_pressed(&self) -> bool {
        let max = self.config.deferred_bytes_max;
        let is_written = self.deferred.written_at.is_some_and(|at| self.now - at < PRESSING);
        self.deferred.waits || self.holds_what_is_wanted() || is_written && self.deferred.total_bytes() >= max - max / 8
    }

    /// True if the device is as good as full, and the log holds more of it than is left.
    fn holds_what_is_wanted(&self) -> bool {
        self.deferred.held > self.alloc.free().saturating_sub(self.reserve())
    }

    pub(crate) fn handle_deferred_written(&mut self, bytes: u64) {
        let Some(batch) = &mut self.deferred.batch else { return };
        batch.written(bytes);
        if batch.is_written() {
            self.dev_waiting.push(FlushFor::DeferredBatch);
        } else {
            self.drive_deferred_batch();
        }
        self.let_waiting_in();
    }

    /// Whoever had to wait for room for deferred blocks goes on, the longest first.
    fn let_waiting_in(&mut self) {
        self.deferred.waits = false;
        let mut waiting: Vec<(u64, types::ShardPgId)> = self.queues.iter().filter_map(|(coll, queue)| Some((*queue.front()?, *coll))).collect();
        waiting.sort_unstable();
        waiting.into_iter().for_each(|(_, coll)| self.queue_ready(coll));
    }

    /// The blocks are in their place: the records go with the next batch, whoever needs that flushed.
    fn finish_deferred_batch(&mut self) {
        let Some(batch) = self.deferred.batch.take() else { return };
        if let (Some(first), Some(last)) = (batch.records.first(), batch.records.last()) {
            self.batch.delete_range(key::deferred(first.seq), key::deferred(last.seq + 1));
        }
        let mut free = Vec::new();
        for record in batch.records {
            for (phys, _) in &record.blocks {
                match self.deferred.drop_one(*phys) {
                    Some((_, true)) => free.push(*phys),
                    Some((data, false)) => {
                        let block = Block { phys: *phys, crc: denc::crc32c(&data), ..Block::default() };
                        self.cache.put(block, &data);
                    }
                    None => {}
                }
            }
        }
        self.release(free);
        self.deferred.pieces.keep_free(self.config.deferred_batch_bytes);
        self.let_waiting_in();
    }

    /// Starts the reads that a block needs before it can be put together.
    pub(crate) fn start_pend(&mut self, mut pend: Pend) {
        let id = pend.cell.id;
        for (i, piece) in pend.pieces.iter_mut().enumerate() {
            match &piece.from {
                Source::Device(block) => {
                    let block = *block;
                    piece.from = Source::Reading;
                    pend.missing += 1;
                    self.read_for_pend(pend.class, id, i, block, 0);
                }
                Source::Cell(cell) => {
                    let on = self.pends.get_mut(&cell.id).expect("an unfilled block is pending");
                    on.dependents.push(id);
                    pend.missing += 1;
                }
                Source::Packed(run, at) => {
                    let (run, at) = (run.clone(), *at);
                    piece.from = Source::Reading;
                    pend.missing += 1;
                    self.want_unpacked(pend.class, id, i, run, at);
                }
                Source::Bytes(_) | Source::Bad(_) | Source::Reading => {}
            }
        }
        assert!(pend.missing > 0, "a block that needs nothing is not pending");
        self.pends.insert(id, pend);
    }

    fn read_for_pend(&mut self, class: Class, pend: u64, piece: usize, block: Block, attempts: u32) {
        self.perf.penalty_read();
        let id = self.io(IoKind::PendRead { pend, piece, block, attempts });
        self.want(class, id, Job::Read { off: block.phys * BLOCK, len: BLOCK as usize, cached: false });
    }

    pub(crate) fn handle_pend_read(&mut self, id: u64, piece: usize, block: Block, attempts: u32, result: Result<Bytes, Errno>) {
        let good = result.as_ref().is_ok_and(|data| data.len() as u64 == BLOCK && block.is(data));
        if !good && attempts < self.config.retry_disk_reads {
            let class = self.pends.get(&id).map_or(Class::Client, |p| p.class);
            return self.read_for_pend(class, id, piece, block, attempts + 1);
        }
        if !good {
            self.unverify(block.phys);
        }
        let from = match result {
            Ok(data) if good => Source::Bytes(data),
            Ok(data) if data.len() as u64 == BLOCK => {
                self.report_pend_checksum(id, block, block.sum_if(&data));
                Source::Bad(data)
            }
            _ => Source::Bad(zeros(BLOCK as usize)),
        };
        self.piece_is_here(id, piece, from);
    }

    /// A piece of a pending block has been read.
    pub(crate) fn piece_is_here(&mut self, id: u64, piece: usize, from: Source) {
        let Some(pend) = self.pends.get_mut(&id) else { return };
        pend.pieces[piece].from = from;
        pend.missing -= 1;
        if pend.missing == 0 {
            self.fill_pend(id);
        }
    }

    /// A block that was to be written in part cannot be read: it is written, and stays unreadable.
    pub(crate) fn report_pend_checksum(&mut self, id: u64, block: Block, actual: u32) {
        let Some(pend) = self.pends.get(&id) else { return };
        let Some(txc) = self.txcs.get(&pend.txc) else { return };
        let Some((_, obj)) = key::parse_object(&pend.key) else { return };
        self.events.push_back(StoreEvent::ChecksumError {
            coll: txc.coll,
            obj,
            off: pend.off,
            device_off: block.phys * BLOCK,
            expected: block.crc,
            actual,
        });
    }

    /// All pieces are here: puts the block together, and those that waited for it.
    fn fill_pend(&mut self, id: u64) {
        let mut ready = vec![id];
        while let Some(id) = ready.pop() {
            let Some(pend) = self.pends.remove(&id) else { continue };
            let filled = compose(pend.phys, pend.csum, &pend.pieces);
            self.deferred.fill(pend.phys, pend.write, &filled.data);
            for dependent in pend.dependents {
                let Some(d) = self.pends.get_mut(&dependent) else { continue };
                for piece in &mut d.pieces {
                    if matches!(&piece.from, Source::Cell(cell) if cell.id == id) {
                        piece.from = filled.source();
                        d.missing -= 1;
                    }
                }
                if d.missing == 0 {
                    ready.push(dependent);
                }
            }
            assert!(pend.cell.filled.set(filled).is_ok(), "a block is put together once");
            if let Some(txc) = self.txcs.get_mut(&pend.txc) {
                txc.pending -= 1;
                if txc.pending == 0 {
                    self.advance(pend.txc);
                }
            }
        }
    }
}

/// What an operation does to the pairs of `[first, end)`.
pub(crate) fn overlay(pairs: &mut BTreeMap<Bytes, Bytes>, op: &KvOp, first: &[u8], end: &[u8]) {
    let inside = |k: &[u8]| k >= first && k < end;
    match op {
        KvOp::Put(k, v) if inside(k) => {
            pairs.insert(k.clone(), v.clone());
        }
        KvOp::Delete(k) => {
            pairs.remove(k);
        }
        KvOp::DeleteRange(from, to) => pairs.retain(|k, _| *k < *from || *k >= *to),
        KvOp::Put(..) => {}
    }
}
