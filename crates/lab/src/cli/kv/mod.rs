//! `nvmirage kv`: accesses keys and values of a key-value drive.

mod bench;
mod key;

use std::fs::File;
use std::io::{Read, Write};
use std::path::PathBuf;

use anyhow::{Context, bail, ensure};
use driver::bus::place::Place;
use driver::key_value::{Dialect, Keys, Rule};
use driver::{Doorbells, DriverError};
use load::{Host, Needs, Queue};
use nvme_spec::opcode::Csi;
use nvme_spec::{Status, samsung};
use serde::Serialize;
use terminal::error::UsageError;

use self::key::Key;
use super::as_host::AsHost;
use super::wait::WaitArg;

const EXAMPLES: &str = "\
Examples:
  nvmirage kv --target vfio-user:/tmp/kv.sock put colour blue
  nvmirage kv --target vfio-user:/tmp/kv.sock put picture --file picture.png
  nvmirage kv --target vfio-user:/tmp/kv.sock get picture --output copy.png
  nvmirage kv --target vfio-user:/tmp/kv.sock ls --prefix pic
  nvmirage kv --target vfio-user:/tmp/kv.sock bench --value-size 4KiB --qd 32

A key has 1 to 16 bytes (4 to 16 for --dialect samsung), as text or as 0x and hexadecimal digits; a
value up to 2 MiB, as far as one command of the controller moves as much (max_transfer). A
controller serves one host at a time: while a guest has the drive this fails; --wait waits.";

/// Bytes of the largest value.
const VALUE_MAX: u32 = 2 << 20;
/// Bytes of one list of keys.
const LIST_LEN: u32 = 64 << 10;

/// Store and retrieve values on a key-value drive, over vfio-user, NVMe/TCP or on this machine
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES, mut_arg("wait", |arg| arg.global(true)))]
pub struct Kv {
    /// Address of the drive: a server's socket, a subsystem behind a target, or a PCI function
    /// bound to vfio-pci
    // Required, which clap does not allow of an option that may stand after the verb.
    #[arg(
        long,
        global = true,
        value_name = "vfio-user:PATH|nvme-tcp:HOST:PORT/NQN|pci:ADDRESS"
    )]
    target: Option<Place>,

    /// Namespace identifier
    #[arg(long, global = true, default_value_t = 1, value_name = "NSID")]
    nsid: u32,

    /// Command set; auto: the Key Value command set, or an error
    #[arg(long, global = true, value_enum, default_value_t)]
    dialect: DialectArg,

    #[command(flatten)]
    wait: WaitArg,

    #[command(flatten)]
    as_host: AsHost,

    #[command(subcommand)]
    what: What,
}

#[derive(Clone, Copy, Debug, Default, clap::ValueEnum)]
enum DialectArg {
    #[default]
    Auto,
    Nvme,
    Samsung,
}

#[derive(Debug, clap::Subcommand)]
enum What {
    Put(Put),
    Get(Get),
    #[command(alias = "del")]
    Delete(Delete),
    Exist(Exist),
    Ls(Ls),
    Bench(bench::Bench),
}

/// Store a value
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  nvmirage kv --target vfio-user:/tmp/kv.sock put colour blue
  nvmirage kv --target vfio-user:/tmp/kv.sock put picture --file picture.png --must-not-exist")]
struct Put {
    key: Key,

    /// Value; default: the contents of --file, else standard input
    #[arg(conflicts_with = "file")]
    value: Option<String>,

    /// File with the value
    #[arg(long, value_name = "PATH")]
    file: Option<PathBuf>,

    /// Store only if the key exists
    #[arg(long, conflicts_with = "must_not_exist")]
    must_exist: bool,

    /// Store only if the key does not exist
    #[arg(long)]
    must_not_exist: bool,
}

/// Retrieve a value
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  nvmirage kv --target vfio-user:/tmp/kv.sock get picture --output copy.png")]
struct Get {
    key: Key,

    /// Output file; default: standard output
    #[arg(long, short, value_name = "PATH")]
    output: Option<PathBuf>,
}

/// Delete keys
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  nvmirage kv --target vfio-user:/tmp/kv.sock delete colour picture")]
struct Delete {
    #[arg(required = true)]
    keys: Vec<Key>,
}

/// Test whether a key exists, and exit with success if it does
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  nvmirage kv --target vfio-user:/tmp/kv.sock exist 0x00ff")]
struct Exist {
    key: Key,
}

/// List keys in byte order
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  nvmirage kv --target vfio-user:/tmp/kv.sock ls --prefix pic")]
struct Ls {
    /// Prefix of the listed keys
    #[arg(long, value_name = "KEY")]
    prefix: Option<Key>,

    /// First key of the listing
    #[arg(long, value_name = "KEY")]
    from: Option<Key>,

    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// A listing.
#[derive(Debug, Serialize)]
struct Listed {
    keys: Vec<ListedKey>,
}

#[derive(Debug, Serialize)]
struct ListedKey {
    /// The key in the command line's form.
    key: String,
    /// The key's bytes in hexadecimal.
    hex: String,
}

/// A host of the drive, with one queue pair.
struct Client {
    host: Host,
    queue: Queue,
    keys: Keys,
}

impl Kv {
    /// Runs the command, and prints its result.
    ///
    /// # Errors
    /// For the user: what failed, and why.
    pub fn run(self) -> anyhow::Result<()> {
        self.as_host.assume(self.target.as_ref())?;
        let Some(target) = &self.target else {
            let text = "an address is needed: --target vfio-user:PATH or pci:ADDRESS";
            return Err(UsageError(text.to_owned()).into());
        };
        let (depth, block_size) = match &self.what {
            What::Bench(bench) => bench.needs(),
            _ => (1, VALUE_MAX),
        };
        let needs = Needs::of(depth, block_size).waiting(self.wait.get());
        let mut host = Host::connect_to_all_sets(target, Doorbells::Auto, needs)?;
        let keys = Keys {
            nsid: self.nsid,
            dialect: dialect(&mut host, self.nsid, self.dialect)?,
        };
        let depth = depth.min(host.device().depth_max());
        let queue = host.device().create_queue_pair(depth, false)?;
        let mut client = Client { host, queue, keys };
        let done = match self.what {
            What::Put(put) => client.put(&put),
            What::Get(get) => client.get(&get),
            What::Delete(delete) => client.delete(&delete),
            What::Exist(exist) => client.exist(&exist),
            What::Ls(ls) => client.ls(&ls),
            What::Bench(bench) => bench.run(&mut client),
        };
        // The first error matters most.
        let left = client.host.leave();
        done.and(left)
    }
}

/// Command set of a namespace, from its descriptor or from the user.
fn dialect(host: &mut Host, nsid: u32, asked: DialectArg) -> anyhow::Result<Dialect> {
    let csi = host.device().command_set(nsid);
    let csi = csi.with_context(|| format!("the drive has no namespace {nsid}"))?;
    match asked {
        DialectArg::Auto if csi == Csi::KEY_VALUE => Ok(Dialect::Nvme),
        DialectArg::Auto => bail!(
            "namespace {nsid} does not report the Key Value command set: for Samsung's commands, write --dialect samsung"
        ),
        DialectArg::Nvme => Ok(Dialect::Nvme),
        DialectArg::Samsung => Ok(Dialect::Samsung),
    }
}

/// Explains a status to a user who asked for a key.
fn explained(error: DriverError, key: &Key) -> anyhow::Error {
    let DriverError::Status { status, .. } = &error else {
        return error.into();
    };
    let why = match *status {
        Status::KV_KEY_DOES_NOT_EXIST | samsung::status::KEY_DOES_NOT_EXIST => "does not exist",
        Status::KEY_EXISTS | samsung::status::IDEMPOTENT_STORE_FAILED => "exists",
        Status::CAPACITY_EXCEEDED | samsung::status::CAPACITY_EXCEEDED => {
            "was not stored: the drive is full"
        }
        _ => return anyhow::Error::new(error).context(format!("key {key}")),
    };
    anyhow::anyhow!("key {key} {why}")
}

impl Client {
    /// Rejects a length that one command cannot move.
    fn check_len(&mut self, len: u64) -> anyhow::Result<u32> {
        let max = u64::from(self.queue.transfer_len().min(VALUE_MAX));
        ensure!(
            len <= max,
            "the value has {len} bytes, more than the {max} of one command: serve the drive with a larger max_transfer (2MiB for every value)"
        );
        Ok(u32::try_from(len)?)
    }

    /// Rejects data that one command cannot move.
    fn check_transfer(&self, len: u32) -> anyhow::Result<()> {
        let max = self.queue.transfer_len();
        ensure!(
            len <= max,
            "a command with {len} bytes of data exceeds the maximum of {max}: store fewer or smaller values per command, or serve the drive with a larger max_transfer"
        );
        Ok(())
    }

    fn put(&mut self, put: &Put) -> anyhow::Result<()> {
        let value = put.read_value()?;
        let len = self.check_len(value.len() as u64)?;
        let buffer = self.host.device().alloc(value.len().max(1))?;
        buffer.write_from(0, &value);
        let rule = match (put.must_exist, put.must_not_exist) {
            (true, _) => Rule::MustExist,
            (_, true) => Rule::MustNotExist,
            _ => Rule::Any,
        };
        let keys = self.keys;
        let done = self
            .queue
            .kv_store(&keys, put.key.bytes(), &buffer, len, rule);
        done.map(drop).map_err(|error| explained(error, &put.key))
    }

    fn get(&mut self, get: &Get) -> anyhow::Result<()> {
        let room = self.queue.transfer_len().min(VALUE_MAX);
        let buffer = self.host.device().alloc(room as usize)?;
        let keys = self.keys;
        let done = self
            .queue
            .kv_retrieve(&keys, get.key.bytes(), &buffer, room);
        let len = done.map_err(|error| explained(error, &get.key))?;
        let len = self.check_len(len.into())?;
        let mut value = vec![0; len as usize];
        buffer.read_into(0, &mut value);
        match &get.output {
            Some(path) => std::fs::write(path, &value)
                .with_context(|| format!("cannot write {}", path.display())),
            None => {
                let mut out = std::io::stdout().lock();
                let done = out.write_all(&value).and_then(|()| out.flush());
                done.context("cannot write to standard output")
            }
        }
    }

    fn delete(&mut self, delete: &Delete) -> anyhow::Result<()> {
        let keys = self.keys;
        for key in &delete.keys {
            let done = self.queue.kv_delete(&keys, key.bytes());
            done.map_err(|error| explained(error, key))?;
        }
        Ok(())
    }

    fn exist(&mut self, exist: &Exist) -> anyhow::Result<()> {
        let keys = self.keys;
        let done = self.queue.kv_exist(&keys, exist.key.bytes());
        done.map(drop).map_err(|error| explained(error, &exist.key))
    }

    fn ls(&mut self, ls: &Ls) -> anyhow::Result<()> {
        let prefix = ls.prefix.as_ref().map_or(&[][..], Key::bytes);
        let from = ls.from.as_ref().map_or(&[][..], Key::bytes).max(prefix);
        let mut keys = match self.keys.dialect {
            Dialect::Nvme => self.list(from, prefix)?,
            Dialect::Samsung => self.iterate(prefix)?,
        };
        keys.retain(|key| key.starts_with(prefix) && key.as_slice() >= from);
        let keys = keys.into_iter().map(Key::from);
        if ls.json {
            let keys = keys.map(|key| ListedKey {
                key: key.to_string(),
                hex: key.hex(),
            });
            return terminal::print_json(&Listed {
                keys: keys.collect(),
            });
        }
        let lines: String = keys.map(|key| format!("{key}\n")).collect();
        terminal::print(&lines)
    }

    /// Keys from `from` on, up to the first without the prefix.
    fn list(&mut self, from: &[u8], prefix: &[u8]) -> anyhow::Result<Vec<Vec<u8>>> {
        let buffer = self.host.device().alloc(LIST_LEN as usize)?;
        let mut all: Vec<Vec<u8>> = Vec::new();
        loop {
            let from = all.last().map_or(from, Vec::as_slice).to_vec();
            let listed = self
                .queue
                .kv_list(self.keys.nsid, &from, &buffer, LIST_LEN)?;
            // Each list begins with the key that was requested.
            let before = all.len();
            let new = listed.into_iter().filter(|key| all.last() != Some(key));
            all.extend(new.collect::<Vec<_>>());
            let ended = all.len() == before;
            if ended || all.last().is_some_and(|key| !key.starts_with(prefix)) {
                return Ok(all);
            }
        }
    }

    /// Keys whose first bytes, up to four, are those of `prefix`; the result may contain others
    /// that only share these bytes.
    fn iterate(&mut self, prefix: &[u8]) -> anyhow::Result<Vec<Vec<u8>>> {
        let buffer = self.host.device().alloc(LIST_LEN as usize)?;
        let nsid = self.keys.nsid;
        let handle = self
            .queue
            .kv_open_iterator(nsid, &prefix[..prefix.len().min(4)])?;
        let mut all = Vec::new();
        let done = loop {
            match self.queue.kv_read_iterator(nsid, handle, &buffer, LIST_LEN) {
                Ok((keys, ended)) => {
                    all.extend(keys);
                    if ended {
                        break Ok(all);
                    }
                }
                Err(error) => break Err(error.into()),
            }
        };
        self.queue.kv_close_iterator(nsid, handle)?;
        done
    }
}

impl Put {
    fn read_value(&self) -> anyhow::Result<Vec<u8>> {
        // A buffer one byte above the maximum shows whether there is more.
        let limit = u64::from(VALUE_MAX) + 1;
        let mut value = Vec::new();
        match (&self.value, &self.file) {
            (Some(value), _) => return Ok(value.clone().into_bytes()),
            (None, Some(path)) => {
                let place = || format!("cannot read {}", path.display());
                let file = File::open(path).with_context(place)?;
                file.take(limit)
                    .read_to_end(&mut value)
                    .with_context(place)?;
            }
            (None, None) => {
                let input = std::io::stdin().lock();
                let read = input.take(limit).read_to_end(&mut value);
                read.context("cannot read standard input")?;
            }
        }
        ensure!(
            value.len() as u64 <= u64::from(VALUE_MAX),
            "the value is larger than {VALUE_MAX} bytes"
        );
        Ok(value)
    }
}
