//! Writing an event as the flat JSON object of the trace format.

use serde::ser::{Serialize, SerializeMap, Serializer};

use super::{Event, EventKind, Heartbeat, NcclCall};

impl EventKind<'_> {
    /// The name of the event in the trace.
    pub fn name(&self) -> &str {
        match self {
            Self::ProcessStart => "process_start",
            Self::ProcessEnd => "process_end",
            Self::Heartbeat(_) => "heartbeat",
            Self::ProbeStatus { .. } => "probe_status",
            Self::CheckpointStart => "checkpoint_start",
            Self::CheckpointEnd => "checkpoint_end",
            Self::CommInit(_) => "comm_init",
            Self::CommDestroy(_) => "comm_destroy",
            Self::NcclCall(_) => "nccl_call",
            Self::Unknown(name) => name,
        }
    }
}

impl Serialize for Event<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let header = &self.header;
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("schema_version", &header.schema_version)?;
        map.serialize_entry("event", self.kind.name())?;
        map.serialize_entry("run_id", &header.run_id)?;
        map.serialize_entry("timestamp_unix_ns", &header.timestamp_unix_ns)?;
        map.serialize_entry("timestamp_mono_ns", &header.timestamp_mono_ns)?;
        map.serialize_entry("hostname", &header.hostname)?;
        map.serialize_entry("rank", &header.rank)?;
        map.serialize_entry("local_rank", &header.local_rank)?;
        map.serialize_entry("world_size", &header.world_size)?;
        map.serialize_entry("pid", &header.pid)?;
        match &self.kind {
            EventKind::Heartbeat(beat) => heartbeat(&mut map, beat)?,
            EventKind::ProbeStatus { dropped_events, discarded_events } => {
                counts(&mut map, *dropped_events, *discarded_events)?;
            }
            EventKind::CommInit(fields)
            | EventKind::CommDestroy(fields)
            | EventKind::NcclCall(fields) => call(&mut map, fields)?,
            _ => {}
        }
        map.end()
    }
}

fn heartbeat<M: SerializeMap>(map: &mut M, beat: &Heartbeat<'_>) -> Result<(), M::Error> {
    map.serialize_entry("phase", &beat.phase)?;
    if let Some(active) = beat.checkpoint_active {
        map.serialize_entry("checkpoint_active", &active)?;
    }
    map.serialize_entry("last_nccl_api", &beat.last_nccl_api)?;
    map.serialize_entry("last_nccl_phase", &beat.last_nccl_phase)?;
    map.serialize_entry("last_nccl_seq", &beat.last_nccl_seq)?;
    map.serialize_entry("last_progress_mono_ns", &beat.last_progress_mono_ns)?;
    counts(map, beat.dropped_events, beat.discarded_events)?;
    for (name, value) in [
        ("progress_seq", beat.progress_seq),
        ("iteration", beat.iteration),
        ("last_progress_unix_ns", beat.last_progress_unix_ns),
    ] {
        if value != -1 {
            map.serialize_entry(name, &value)?;
        }
    }
    Ok(())
}

fn counts<M: SerializeMap>(map: &mut M, dropped: i64, discarded: i64) -> Result<(), M::Error> {
    map.serialize_entry("dropped_events", &dropped)?;
    if discarded != -1 {
        map.serialize_entry("discarded_events", &discarded)?;
    }
    Ok(())
}

fn call<M: SerializeMap>(map: &mut M, call: &NcclCall<'_>) -> Result<(), M::Error> {
    map.serialize_entry("api", &call.api)?;
    map.serialize_entry("phase", call.phase.as_str())?;
    map.serialize_entry("comm_uid_hash", &call.comm_uid_hash)?;
    map.serialize_entry("comm_rank", &call.comm_rank)?;
    map.serialize_entry("comm_nranks", &call.comm_nranks)?;
    map.serialize_entry("comm_seq", &call.comm_seq)?;
    map.serialize_entry("call_seq", &call.call_seq)?;
    map.serialize_entry("count", &call.count)?;
    map.serialize_entry("datatype", &call.datatype)?;
    map.serialize_entry("op", &call.op)?;
    map.serialize_entry("root", &call.root)?;
    map.serialize_entry("peer", &call.peer)?;
    map.serialize_entry("stream", &call.stream)?;
    map.serialize_entry("group_id", &call.group_id)?;
    map.serialize_entry("group_op_index", &call.group_op_index)?;
    map.serialize_entry("p2p_op_index", &call.p2p_op_index)?;
    if !call.p2p_op_index_scope.is_empty() {
        map.serialize_entry("p2p_op_index_scope", &call.p2p_op_index_scope)?;
    }
    map.serialize_entry("result", &call.result)?;
    map.serialize_entry("result_name", &call.result_name)?;
    if !call.parent_hash.is_empty() {
        map.serialize_entry("parent_hash", &call.parent_hash)?;
        map.serialize_entry("parent_ordinal", &call.parent_ordinal)?;
        map.serialize_entry("color", &call.color)?;
        map.serialize_entry("excluded", &call.excluded)?;
    }
    if call.captured {
        map.serialize_entry("captured", &true)?;
    }
    Ok(())
}
