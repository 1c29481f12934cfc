//! Dumps of a healthy training job, in both forms.

use std::collections::HashMap;
use std::io::{self, BufWriter, Write};

/// A way to write values. Containers are opened and closed.
pub trait Form<W: Write>: Sized {
    /// Begins a dump.
    fn new(out: W) -> io::Result<Self>;
    /// Opens a dictionary.
    fn open_dict(&mut self) -> io::Result<()>;
    /// Closes it.
    fn close_dict(&mut self) -> io::Result<()>;
    /// Opens a list.
    fn open_list(&mut self) -> io::Result<()>;
    /// Closes it.
    fn close_list(&mut self) -> io::Result<()>;
    /// A text; one that `again` says to come again is written once.
    fn text(&mut self, text: &str, again: bool) -> io::Result<()>;
    /// A number.
    fn int(&mut self, number: i64) -> io::Result<()>;
    /// A truth value.
    fn bool(&mut self, value: bool) -> io::Result<()>;
    /// Nothing.
    fn none(&mut self) -> io::Result<()>;
    /// Ends the dump.
    fn finish(self) -> io::Result<()>;
}

/// The pickle form, with the instructions that PyTorch's own writer uses.
pub struct Pickle<W: Write> {
    out: BufWriter<W>,
    memo: HashMap<String, u32>,
    next: u32,
}

impl<W: Write> Pickle<W> {
    fn put(&mut self) -> io::Result<()> {
        let number = self.next;
        self.next += 1;
        match u8::try_from(number) {
            Ok(small) => self.out.write_all(&[b'q', small]),
            Err(_) => {
                self.out.write_all(b"r")?;
                self.out.write_all(&number.to_le_bytes())
            }
        }
    }
}

impl<W: Write> Form<W> for Pickle<W> {
    fn new(out: W) -> io::Result<Self> {
        let mut out = BufWriter::new(out);
        out.write_all(&[0x80, 2])?;
        Ok(Self { out, memo: HashMap::new(), next: 0 })
    }

    fn open_dict(&mut self) -> io::Result<()> {
        self.out.write_all(b"}")?;
        self.put()?;
        self.out.write_all(b"(")
    }

    fn close_dict(&mut self) -> io::Result<()> {
        self.out.write_all(b"u")
    }

    fn open_list(&mut self) -> io::Result<()> {
        self.out.write_all(b"]")?;
        self.put()?;
        self.out.write_all(b"(")
    }

    fn close_list(&mut self) -> io::Result<()> {
        self.out.write_all(b"e")
    }

    fn text(&mut self, text: &str, again: bool) -> io::Result<()> {
        if let Some(&known) = self.memo.get(text).filter(|_| again) {
            return match u8::try_from(known) {
                Ok(small) => self.out.write_all(&[b'h', small]),
                Err(_) => {
                    self.out.write_all(b"j")?;
                    self.out.write_all(&known.to_le_bytes())
                }
            };
        }
        if again {
            self.memo.insert(text.to_owned(), self.next);
        }
        self.out.write_all(b"X")?;
        self.out.write_all(&u32::try_from(text.len()).map_err(io::Error::other)?.to_le_bytes())?;
        self.out.write_all(text.as_bytes())?;
        self.put()
    }

    fn int(&mut self, number: i64) -> io::Result<()> {
        if let Ok(small) = u8::try_from(number) {
            return self.out.write_all(&[b'K', small]);
        }
        if let Ok(number) = i32::try_from(number) {
            self.out.write_all(b"J")?;
            return self.out.write_all(&number.to_le_bytes());
        }
        self.out.write_all(&[0x8a, 8])?;
        self.out.write_all(&number.to_le_bytes())
    }

    fn bool(&mut self, value: bool) -> io::Result<()> {
        self.out.write_all(if value { &[0x88] } else { &[0x89] })
    }

    fn none(&mut self) -> io::Result<()> {
        self.out.write_all(b"N")
    }

    fn finish(mut self) -> io::Result<()> {
        self.out.write_all(b".")?;
        self.out.flush()
    }
}

/// The JSON form.
pub struct Json<W: Write> {
    out: BufWriter<W>,
    /// By open container: whether it is a dictionary, and values written.
    open: Vec<(bool, usize)>,
}

impl<W: Write> Json<W> {
    /// What stands between this value and the one before.
    fn separate(&mut self) -> io::Result<()> {
        let Some((dict, values)) = self.open.last_mut() else { return Ok(()) };
        let between: &[u8] = match (*dict, *values) {
            (_, 0) => b"",
            (true, values) if values % 2 == 1 => b": ",
            _ => b", ",
        };
        *values += 1;
        self.out.write_all(between)
    }
}

impl<W: Write> Form<W> for Json<W> {
    fn new(out: W) -> io::Result<Self> {
        Ok(Self { out: BufWriter::new(out), open: Vec::new() })
    }

    fn open_dict(&mut self) -> io::Result<()> {
        self.separate()?;
        self.open.push((true, 0));
        self.out.write_all(b"{")
    }

    fn close_dict(&mut self) -> io::Result<()> {
        self.open.pop();
        self.out.write_all(b"}")
    }

    fn open_list(&mut self) -> io::Result<()> {
        self.separate()?;
        self.open.push((false, 0));
        self.out.write_all(b"[")
    }

    fn close_list(&mut self) -> io::Result<()> {
        self.open.pop();
        self.out.write_all(b"]")
    }

    fn text(&mut self, text: &str, _: bool) -> io::Result<()> {
        self.separate()?;
        // None of the texts here needs an escape.
        write!(self.out, "\"{text}\"")
    }

    fn int(&mut self, number: i64) -> io::Result<()> {
        self.separate()?;
        write!(self.out, "{number}")
    }

    fn bool(&mut self, value: bool) -> io::Result<()> {
        self.separate()?;
        write!(self.out, "{value}")
    }

    fn none(&mut self) -> io::Result<()> {
        self.separate()?;
        self.out.write_all(b"null")
    }

    fn finish(mut self) -> io::Result<()> {
        self.out.flush()
    }
}

/// Frames of a call: those of a training loop.
const FRAMES: [(&str, &str, i64); 8] = [
    ("all_reduce", "site-packages/torch/distributed/distributed_c10d.py", 2963),
    ("wrapper", "site-packages/torch/distributed/c10d_logger.py", 83),
    ("_allreduce_fut", "site-packages/torch/distributed/algorithms/ddp_comm_hooks.py", 34),
    ("backward", "site-packages/torch/autograd/graph.py", 829),
    ("backward", "site-packages/torch/_tensor.py", 630),
    ("step", "train/loop.py", 211),
    ("main", "train/main.py", 40),
    ("<module>", "train/main.py", 77),
];

/// When the job began, ns since 1970.
const BEGIN_NS: i64 = 1_795_987_831_000_000_000;

/// Writes the dump of a rank of a healthy job of `ranks` ranks with `entries` calls, all complete.
///
/// # Errors
///
/// When it cannot be written.
pub fn write_dump<F: Form<W>, W: Write>(
    out: W,
    rank: usize,
    ranks: usize,
    entries: usize,
) -> io::Result<()> {
    let mut form = F::new(out)?;
    form.open_dict()?;
    key_text(&mut form, "version", "2.10")?;
    form.text("pg_config", true)?;
    form.open_dict()?;
    form.text("0", true)?;
    form.open_dict()?;
    key_text(&mut form, "name", "0")?;
    key_text(&mut form, "desc", "default_pg")?;
    let members: Vec<String> = (0..ranks).map(|rank| rank.to_string()).collect();
    form.text("ranks", true)?;
    form.text(&format!("[{}]", members.join(", ")), false)?;
    form.close_dict()?;
    form.close_dict()?;
    form.text("entries", true)?;
    form.open_list()?;
    for number in 0..entries {
        write_entry(&mut form, rank as i64, number as i64)?;
    }
    form.close_list()?;
    form.close_dict()?;
    form.finish()
}

fn key_text<W: Write>(form: &mut impl Form<W>, key: &str, text: &str) -> io::Result<()> {
    form.text(key, true)?;
    form.text(text, true)
}

fn key_int<W: Write>(form: &mut impl Form<W>, key: &str, number: i64) -> io::Result<()> {
    form.text(key, true)?;
    form.int(number)
}

fn write_entry<W: Write>(form: &mut impl Form<W>, rank: i64, number: i64) -> io::Result<()> {
    let created = BEGIN_NS + number * 1_000_000 + rank * 1_000;
    form.open_dict()?;
    form.text("frames", true)?;
    form.open_list()?;
    for (function, file, line) in FRAMES {
        form.open_dict()?;
        key_text(form, "name", function)?;
        form.text("filename", true)?;
        // PyTorch's writer knows texts by their place in memory: file names are new each time.
        form.text(file, false)?;
        key_int(form, "line", line)?;
        form.close_dict()?;
    }
    form.close_list()?;
    key_int(form, "record_id", number)?;
    key_int(form, "pg_id", 0)?;
    form.text("process_group", true)?;
    form.open_list()?;
    form.text("0", true)?;
    form.text("default_pg", true)?;
    form.close_list()?;
    key_text(form, "thread_name", "python3")?;
    key_text(form, "thread_id", "140538518541888")?;
    key_int(form, "collective_seq_id", number + 1)?;
    key_int(form, "p2p_seq_id", 0)?;
    key_int(form, "op_id", number + 1)?;
    key_text(form, "profiling_name", "nccl:all_reduce")?;
    key_int(form, "time_created_ns", created)?;
    for (sizes, types) in [("input_sizes", "input_dtypes"), ("output_sizes", "output_dtypes")] {
        form.text(sizes, true)?;
        form.open_list()?;
        form.open_list()?;
        // The buckets of a model: of different sizes, the same in each step.
        form.int(1 << (12 + number % 8))?;
        form.close_list()?;
        form.close_list()?;
        form.text(types, true)?;
        form.open_list()?;
        form.text("Float", true)?;
        form.close_list()?;
    }
    key_text(form, "state", "completed")?;
    form.text("time_discovered_started_ns", true)?;
    form.none()?;
    key_int(form, "time_discovered_completed_ns", created + 500_000)?;
    form.text("retired", true)?;
    form.bool(true)?;
    key_int(form, "timeout_ms", 600_000)?;
    form.text("is_p2p", true)?;
    form.bool(false)?;
    form.close_dict()
}
