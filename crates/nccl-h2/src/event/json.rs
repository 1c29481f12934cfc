//! Reading the flat JSON object of an event: lenient values, borrowed strings.

use std::borrow::Cow;
use std::fmt;

use serde::de::{Deserialize, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};

use super::{Event, EventKind, Header, Heartbeat, NcclCall, Phase};

/// An integer: -1 for any value that is not an integer of 64 bits.
struct Int(i64);

/// A string: "" for any value that is not a string.
struct Text<'a>(Cow<'a, str>);

/// A truth value: `None` for any value that is not one.
struct Flag(Option<bool>);

macro_rules! lenient {
    ($type:ty, $default:expr, $($method:item)*) => {
        type Value = $type;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("any JSON value")
        }

        fn visit_unit<E: Error>(self) -> Result<$type, E> {
            Ok($default)
        }

        fn visit_f64<E: Error>(self, _: f64) -> Result<$type, E> {
            Ok($default)
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<$type, A::Error> {
            while seq.next_element::<IgnoredAny>()?.is_some() {}
            Ok($default)
        }

        fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<$type, A::Error> {
            while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
            Ok($default)
        }

        $($method)*
    };
}

impl<'de> Deserialize<'de> for Int {
    #[inline]
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct IntVisitor;
        impl<'de> Visitor<'de> for IntVisitor {
            lenient! { Int, Int(-1),
                #[inline]
                fn visit_i64<E: Error>(self, value: i64) -> Result<Int, E> {
                    Ok(Int(value))
                }

                #[inline]
                fn visit_u64<E: Error>(self, value: u64) -> Result<Int, E> {
                    Ok(Int(i64::try_from(value).unwrap_or(-1)))
                }

                fn visit_bool<E: Error>(self, _: bool) -> Result<Int, E> {
                    Ok(Int(-1))
                }

                fn visit_str<E: Error>(self, _: &str) -> Result<Int, E> {
                    Ok(Int(-1))
                }
            }
        }
        deserializer.deserialize_any(IntVisitor)
    }
}

impl<'de> Deserialize<'de> for Text<'de> {
    #[inline]
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct TextVisitor;
        impl<'de> Visitor<'de> for TextVisitor {
            lenient! { Text<'de>, Text(Cow::Borrowed("")),
                #[inline]
                fn visit_borrowed_str<E: Error>(self, value: &'de str) -> Result<Text<'de>, E> {
                    Ok(Text(Cow::Borrowed(value)))
                }

                fn visit_str<E: Error>(self, value: &str) -> Result<Text<'de>, E> {
                    Ok(Text(Cow::Owned(value.to_owned())))
                }

                fn visit_i64<E: Error>(self, _: i64) -> Result<Text<'de>, E> {
                    Ok(Text(Cow::Borrowed("")))
                }

                fn visit_u64<E: Error>(self, _: u64) -> Result<Text<'de>, E> {
                    Ok(Text(Cow::Borrowed("")))
                }

                fn visit_bool<E: Error>(self, _: bool) -> Result<Text<'de>, E> {
                    Ok(Text(Cow::Borrowed("")))
                }
            }
        }
        deserializer.deserialize_any(TextVisitor)
    }
}

impl<'de> Deserialize<'de> for Flag {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct FlagVisitor;
        impl<'de> Visitor<'de> for FlagVisitor {
            lenient! { Flag, Flag(None),
                fn visit_bool<E: Error>(self, value: bool) -> Result<Flag, E> {
                    Ok(Flag(Some(value)))
                }

                fn visit_i64<E: Error>(self, _: i64) -> Result<Flag, E> {
                    Ok(Flag(None))
                }

                fn visit_u64<E: Error>(self, _: u64) -> Result<Flag, E> {
                    Ok(Flag(None))
                }

                fn visit_str<E: Error>(self, _: &str) -> Result<Flag, E> {
                    Ok(Flag(None))
                }
            }
        }
        deserializer.deserialize_any(FlagVisitor)
    }
}

/// Declares the names of all fields and how a name is recognised.
macro_rules! fields {
    ($($name:ident),* $(,)?) => {
        #[allow(non_camel_case_types, reason = "named as in the trace")]
        enum Field { $($name,)* Other }

        impl<'de> Deserialize<'de> for Field {
            #[inline]
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                struct FieldVisitor;
                impl Visitor<'_> for FieldVisitor {
                    type Value = Field;

                    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                        f.write_str("a field name")
                    }

                    #[inline]
                    fn visit_str<E: Error>(self, name: &str) -> Result<Field, E> {
                        Ok(match name { $(stringify!($name) => Field::$name,)* _ => Field::Other })
                    }
                }
                deserializer.deserialize_identifier(FieldVisitor)
            }
        }
    };
}

fields! {
    schema_version, event, run_id, timestamp_unix_ns, timestamp_mono_ns, hostname, rank,
    local_rank, world_size, pid, api, phase, comm_uid_hash, comm_rank, comm_nranks, comm_seq,
    call_seq, count, datatype, op, root, peer, stream, group_id, group_op_index, p2p_op_index,
    p2p_op_index_scope, result, result_name, parent_hash, parent_ordinal, color, excluded,
    captured, checkpoint_active, last_nccl_api, last_nccl_phase, last_nccl_seq,
    last_progress_mono_ns, dropped_events, discarded_events, progress_seq, iteration, last_progress_unix_ns,
}

impl<'de: 'a, 'a> Deserialize<'de> for Event<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct EventVisitor;
        impl<'de> Visitor<'de> for EventVisitor {
            type Value = Event<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an event")
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Event<'de>, A::Error> {
                let mut flat = Flat::default();
                flat.fill(map)?;
                Ok(flat.event())
            }
        }
        deserializer.deserialize_map(EventVisitor)
    }
}

/// All fields of all events, as they stand in the flat object.
struct Flat<'a> {
    header: Header<'a>,
    call: NcclCall<'a>,
    heartbeat: Heartbeat<'a>,
    event: Cow<'a, str>,
    phase: Cow<'a, str>,
}

impl Default for Flat<'_> {
    #[inline]
    fn default() -> Self {
        Self {
            header: Header { schema_version: -1, ..Header::default() },
            call: NcclCall::default(),
            heartbeat: Heartbeat::default(),
            event: Cow::Borrowed(""),
            phase: Cow::Borrowed(""),
        }
    }
}

impl<'de> Flat<'de> {
    #[inline]
    fn fill<A: MapAccess<'de>>(&mut self, mut map: A) -> Result<(), A::Error> {
        let (header, call, beat) = (&mut self.header, &mut self.call, &mut self.heartbeat);
        while let Some(field) = map.next_key::<Field>()? {
            macro_rules! int {
                ($place:expr) => {{
                    $place = map.next_value::<Int>()?.0;
                }};
            }
            macro_rules! text {
                ($place:expr) => {{
                    $place = map.next_value::<Text<'de>>()?.0;
                }};
            }
            match field {
                Field::schema_version => int!(header.schema_version),
                Field::event => text!(self.event),
                Field::run_id => text!(header.run_id),
                Field::timestamp_unix_ns => int!(header.timestamp_unix_ns),
                Field::timestamp_mono_ns => int!(header.timestamp_mono_ns),
                Field::hostname => text!(header.hostname),
                Field::rank => int!(header.rank),
                Field::local_rank => int!(header.local_rank),
                Field::world_size => int!(header.world_size),
                Field::pid => int!(header.pid),
                Field::api => text!(call.api),
                Field::phase => text!(self.phase),
                Field::comm_uid_hash => text!(call.comm_uid_hash),
                Field::comm_rank => int!(call.comm_rank),
                Field::comm_nranks => int!(call.comm_nranks),
                Field::comm_seq => int!(call.comm_seq),
                Field::call_seq => int!(call.call_seq),
                Field::count => int!(call.count),
                Field::datatype => int!(call.datatype),
                Field::op => int!(call.op),
                Field::root => int!(call.root),
                Field::peer => int!(call.peer),
                Field::stream => int!(call.stream),
                Field::group_id => int!(call.group_id),
                Field::group_op_index => int!(call.group_op_index),
                Field::p2p_op_index => int!(call.p2p_op_index),
                Field::p2p_op_index_scope => text!(call.p2p_op_index_scope),
                Field::result => int!(call.result),
                Field::result_name => text!(call.result_name),
                Field::parent_hash => text!(call.parent_hash),
                Field::parent_ordinal => int!(call.parent_ordinal),
                Field::color => int!(call.color),
                Field::excluded => text!(call.excluded),
                Field::captured => call.captured = map.next_value::<Flag>()?.0.unwrap_or(false),
                Field::checkpoint_active => beat.checkpoint_active = map.next_value::<Flag>()?.0,
                Field::last_nccl_api => text!(beat.last_nccl_api),
                Field::last_nccl_phase => text!(beat.last_nccl_phase),
                Field::last_nccl_seq => int!(beat.last_nccl_seq),
                Field::last_progress_mono_ns => int!(beat.last_progress_mono_ns),
                Field::dropped_events => int!(beat.dropped_events),
                Field::discarded_events => int!(beat.discarded_events),
                Field::progress_seq => int!(beat.progress_seq),
                Field::iteration => int!(beat.iteration),
                Field::last_progress_unix_ns => int!(beat.last_progress_unix_ns),
                Field::Other => {
                    map.next_value::<IgnoredAny>()?;
                }
            }
        }
        Ok(())
    }

    #[inline]
    fn event(mut self) -> Event<'de> {
        let kind = match &*self.event {
            "nccl_call" => EventKind::NcclCall(self.take_call()),
            "comm_init" => EventKind::CommInit(self.take_call()),
            "comm_destroy" => EventKind::CommDestroy(self.take_call()),
            "process_start" => EventKind::ProcessStart,
            "process_end" => EventKind::ProcessEnd,
            "checkpoint_start" => EventKind::CheckpointStart,
            "checkpoint_end" => EventKind::CheckpointEnd,
            "probe_status" => EventKind::ProbeStatus {
                dropped_events: self.heartbeat.dropped_events,
                discarded_events: self.heartbeat.discarded_events,
            },
            "heartbeat" => EventKind::Heartbeat(Heartbeat { phase: self.phase, ..self.heartbeat }),
            _ => EventKind::Unknown(self.event),
        };
        Event { header: self.header, kind }
    }

    #[inline]
    fn take_call(&mut self) -> NcclCall<'de> {
        let mut call = std::mem::take(&mut self.call);
        call.phase = match &*self.phase {
            "enter" => Phase::Enter,
            "exit" => Phase::Exit,
            _ => Phase::Unknown,
        };
        call
    }
}
