//! The parts of programs, and how they are drawn: mostly valid commands, some with one field that
//! is not.

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::strategy::Union;

use crate::host::Layout;

/// One step of a program.
#[derive(Clone, Debug)]
pub enum Step {
    /// An admin command.
    Admin(Admin),
    /// An I/O command in one of the submission queues that there are.
    Io {
        /// Which of them, modulo their number.
        queue: usize,
        /// The command.
        io: Io,
    },
    /// Commands for different blocks, rung at once; as many as the queue has room for.
    Burst {
        /// As above.
        queue: usize,
        /// The namespace.
        nsid: u32,
        /// For each: whether it writes, and the seed of what.
        writes: Vec<(bool, u8)>,
    },
    /// A Controller Level Reset, after which the queues are made again.
    Reset {
        /// Of the PCI function; otherwise by CC.EN.
        function: bool,
        /// Submission and completion queues that are asked for then, 0's based.
        queues: Option<(u16, u16)>,
    },
}

/// An admin command.
#[derive(Clone, Debug)]
pub enum Admin {
    /// Create I/O Completion Queue.
    CreateCq {
        /// QID.
        qid: u16,
        /// QSIZE, 0's based.
        size_z: u16,
        /// PC.
        contiguous: bool,
        /// IV.
        vector: u16,
        /// The ring begins inside a page.
        misaligned: bool,
    },
    /// Create I/O Submission Queue.
    CreateSq {
        /// QID.
        qid: u16,
        /// QSIZE, 0's based.
        size_z: u16,
        /// PC.
        contiguous: bool,
        /// CQID.
        cqid: u16,
        /// The ring begins inside a page.
        misaligned: bool,
    },
    /// Delete I/O Completion Queue.
    DeleteCq(u16),
    /// Delete I/O Submission Queue.
    DeleteSq(u16),
    /// Identify.
    Identify {
        /// CNS.
        cns: u8,
        /// NSID.
        nsid: u32,
        /// CSI.
        csi: u8,
    },
    /// Get Log Page.
    GetLog {
        /// LID.
        lid: u8,
        /// Dwords, 0's based.
        dwords_z: u16,
        /// LPO, in bytes.
        offset: u64,
    },
    /// Get Features.
    GetFeature {
        /// FID.
        fid: u8,
        /// SEL.
        sel: u8,
        /// NSID.
        nsid: u32,
        /// Dword 11: which of several values.
        which: u32,
    },
    /// Set Features.
    SetFeature {
        /// FID.
        fid: u8,
        /// SV.
        save: bool,
        /// NSID.
        nsid: u32,
        /// Dword 11.
        value: u32,
    },
    /// Abort of an event request that is held, the oldest, or of something that is not there.
    Abort {
        /// The former.
        held: bool,
        /// SQID of the latter.
        sqid: u16,
    },
    /// Asynchronous Event Request.
    EventRequest,
    /// Keep Alive.
    KeepAlive,
    /// Format NVM.
    Format {
        /// NSID.
        nsid: u32,
        /// LBAFL: an index of the table of formats.
        format: u8,
        /// SES.
        erase: u8,
        /// PI.
        protection: u8,
    },
    /// An opcode that no specification knows, or Identify with FUSE or PSDT.
    Odd {
        /// Opcode.
        opcode: u8,
        /// FUSE and PSDT.
        flags: u8,
    },
}

/// Blocks of a namespace.
#[derive(Clone, Copy, Debug)]
pub struct Blocks {
    /// NSID.
    pub nsid: u32,
    /// SLBA.
    pub slba: u64,
    /// As many, not 0's based.
    pub count: u32,
}

/// Fault on the way to a command's data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Nothing.
    None,
    /// PRP1 is not dword aligned.
    Odd,
    /// The second entry has an offset; where there is none, nothing is wrong.
    SecondOffset,
    /// PSDT is 11b, which is reserved.
    Psdt,
    /// There is no memory at PRP1.
    Unmapped,
    /// The SGL describes one byte less than the data.
    Short,
}

/// An I/O command.
#[derive(Clone, Debug)]
pub enum Io {
    /// Read.
    Read(Blocks, bool, Layout, Fault),
    /// Write of what this seed makes; with FUA or without.
    Write(Blocks, u8, bool, Layout, Fault),
    /// Compare with what is there, or not.
    Compare(Blocks, bool, Layout, Fault),
    /// Verify.
    Verify(Blocks),
    /// Write Zeroes; with DEAC or without.
    WriteZeroes(Blocks, bool),
    /// Write Uncorrectable.
    WriteUncorrectable(Blocks),
    /// Dataset Management with AD, or without: ranges of these, in the first one's namespace.
    Deallocate(Vec<Blocks>, bool),
    /// Copy of these ranges, of the lower half of a namespace, to a block of the upper half.
    Copy(Vec<Blocks>, u64),
    /// Flush.
    Flush(u32),
    /// Compare and Write, fused: what is there or not, and the seed of what is written.
    Fused(Blocks, bool, u8),
    /// An opcode that no specification knows.
    Odd(u8, u32),
}

/// Mostly the first, sometimes the second.
fn mostly<T: std::fmt::Debug>(
    often: impl Strategy<Value = T> + 'static,
    seldom: impl Strategy<Value = T> + 'static,
) -> Union<BoxedStrategy<T>> {
    Union::new_weighted(vec![(12, often.boxed()), (1, seldom.boxed())])
}

/// Namespaces that are there; that could be; and that could not.
fn nsid() -> impl Strategy<Value = u32> {
    mostly(
        prop::sample::select(vec![1, 2, 5]),
        prop::sample::select(vec![0, 3, 8, 9, 0xffff_fffe, 0xffff_ffff]),
    )
}

fn blocks(most: u32) -> impl Strategy<Value = Blocks> {
    let slba = mostly(
        0..96u64,
        prop::sample::select(vec![
            250,
            255,
            256,
            60,
            63,
            64,
            1 << 32,
            u64::MAX,
            u64::MAX - 7,
        ]),
    );
    (nsid(), slba, 1..=most).prop_map(|(nsid, slba, count)| Blocks { nsid, slba, count })
}

/// Up to the largest transfer, and sometimes more.
fn transfer() -> impl Strategy<Value = Blocks> {
    Union::new_weighted(vec![
        (6, blocks(8).boxed()),
        (2, blocks(64).boxed()),
        (1, blocks(80).boxed()),
    ])
}

fn layout() -> impl Strategy<Value = Layout> {
    let prp = (0..1024u32, 480..511u16).prop_map(|(dword, list_at)| Layout::Prp {
        offset: 4 * dword,
        list_at,
    });
    let plain = Just(Layout::Prp {
        offset: 0,
        list_at: 0,
    });
    let sgl = (200..5000u16, 0..4096u32).prop_map(|(piece, offset)| Layout::Sgl { piece, offset });
    prop_oneof![plain, prp, sgl]
}

fn fault() -> impl Strategy<Value = Fault> {
    let faults = vec![
        Fault::Odd,
        Fault::SecondOffset,
        Fault::Psdt,
        Fault::Unmapped,
        Fault::Short,
    ];
    mostly(Just(Fault::None), prop::sample::select(faults))
}

fn io() -> impl Strategy<Value = Io> {
    let of = |most| blocks(most);
    // Blocks that are read lie below those that are written: of the same block, either may come
    // first.
    let source = mostly(0..16u64, prop::sample::select(vec![300, u64::MAX - 3]));
    let copied = (nsid(), vec((source, 1..=8u32), 1..4), 24..40u64);
    let copied = copied.prop_map(|(nsid, ranges, to)| {
        let range = |(slba, count)| Blocks { nsid, slba, count };
        Io::Copy(ranges.into_iter().map(range).collect(), to)
    });
    let odd = prop::sample::select(vec![0x03, 0x0a, 0x3f, 0x7f, 0x80, 0xff]);
    prop_oneof![
        6 => (transfer(), any::<bool>(), layout(), fault())
            .prop_map(|(b, fua, l, f)| Io::Read(b, fua, l, f)),
        8 => (transfer(), any::<u8>(), any::<bool>(), layout(), fault())
            .prop_map(|(b, seed, fua, l, f)| Io::Write(b, seed, fua, l, f)),
        3 => (transfer(), any::<bool>(), layout(), fault())
            .prop_map(|(b, same, l, f)| Io::Compare(b, same, l, f)),
        2 => of(300).prop_map(Io::Verify),
        2 => (of(200), any::<bool>()).prop_map(|(b, deac)| Io::WriteZeroes(b, deac)),
        1 => of(20).prop_map(Io::WriteUncorrectable),
        2 => (vec(of(16), 1..5), any::<bool>()).prop_map(|(r, ad)| Io::Deallocate(r, ad)),
        2 => copied,
        1 => prop_oneof![nsid(), Just(0xffff_ffff)].prop_map(Io::Flush),
        1 => (of(1), any::<bool>(), any::<u8>()).prop_map(|(b, same, seed)| Io::Fused(b, same, seed)),
        1 => (odd, nsid()).prop_map(|(opcode, nsid)| Io::Odd(opcode, nsid)),
    ]
}

fn queue_id() -> impl Strategy<Value = u16> {
    mostly(1..=4u16, prop::sample::select(vec![0, 5, 6, 0xffff]))
}

fn size_z() -> impl Strategy<Value = u16> {
    mostly(1..=63u16, prop::sample::select(vec![0, 64, 0xffff]))
}

fn seldom() -> impl Strategy<Value = bool> {
    mostly(Just(false), Just(true))
}

fn features() -> impl Strategy<Value = (u8, u32, u32)> {
    // The feature, Dword 11 to set it, and Dword 11 to ask for that value.
    prop_oneof![
        any::<u32>().prop_map(|v| (0x01, v & 0xffff_ff07, 0)),
        mostly(Just(0u32), 1..32u32).prop_map(|v| (0x02, v, 0)),
        // Thresholds that the temperature of a room does not cross, and selections that do not
        // exist.
        (320..0xffffu32).prop_map(|v| (0x04, v, 0)),
        (0..250u32).prop_map(|v| (0x04, 1 << 20 | v, 1 << 20)),
        Just((0x04, 2 << 20 | 330, 2 << 20)),
        mostly(0..0x1_0000u32, 0x1_0000..0x2_0000u32).prop_map(|v| (0x05, v, 0)),
        (0..2u32).prop_map(|v| (0x06, v, 0)),
        (0..8u32, 0..8u32).prop_map(|(s, c)| (0x07, c << 16 | s, 0)),
        (0..0x1_0000u32).prop_map(|v| (0x08, v, 0)),
        (mostly(0..=4u32, 5..9u32), any::<bool>()).prop_map(|(iv, cd)| (
            0x09,
            u32::from(cd) << 16 | iv,
            iv
        )),
        (0..2u32).prop_map(|v| (0x0a, v, 0)),
        (0..0x200u32).prop_map(|v| (0x0b, v, 0)),
        prop::sample::select(vec![0x00, 0x7c, 0xc5]).prop_map(|fid| (fid, 0, 0)),
    ]
}

fn feature_nsid() -> impl Strategy<Value = u32> {
    prop::sample::select(vec![0, 0, 0, 1, 2, 5, 3, 9, 0xffff_ffff])
}

fn set_feature() -> impl Strategy<Value = Admin> {
    (features(), any::<bool>(), feature_nsid()).prop_map(|((fid, value, _), save, nsid)| {
        Admin::SetFeature {
            fid,
            save,
            nsid,
            value,
        }
    })
}

fn get_feature() -> impl Strategy<Value = Admin> {
    let sel = mostly(0..=3u8, 4..=7u8);
    (features(), sel, feature_nsid()).prop_map(|((fid, _, which), sel, nsid)| Admin::GetFeature {
        fid,
        sel,
        nsid,
        which,
    })
}

fn queues() -> impl Strategy<Value = Admin> {
    let create_cq = (
        queue_id(),
        size_z(),
        seldom(),
        mostly(0..=4u16, 5..9u16),
        seldom(),
    );
    let create_cq =
        create_cq.prop_map(|(qid, size_z, apart, vector, misaligned)| Admin::CreateCq {
            qid,
            size_z,
            contiguous: !apart,
            vector,
            misaligned,
        });
    let create_sq = (queue_id(), size_z(), seldom(), queue_id(), seldom());
    let create_sq = create_sq.prop_map(|(qid, size_z, apart, cqid, misaligned)| Admin::CreateSq {
        qid,
        size_z,
        contiguous: !apart,
        cqid,
        misaligned,
    });
    prop_oneof![
        2 => create_cq,
        3 => create_sq,
        1 => queue_id().prop_map(Admin::DeleteCq),
        2 => queue_id().prop_map(Admin::DeleteSq),
    ]
}

fn questions() -> impl Strategy<Value = Admin> {
    let cns = mostly(
        prop::sample::select(vec![
            0x00, 0x01, 0x02, 0x03, 0x05, 0x06, 0x07, 0x08, 0x10, 0x1c,
        ]),
        prop::sample::select(vec![0x30, 0x7f, 0xff]),
    );
    let identify = (
        cns,
        nsid(),
        mostly(Just(0u8), prop::sample::select(vec![1, 2, 0x30])),
    )
        .prop_map(|(cns, nsid, csi)| Admin::Identify { cns, nsid, csi });
    let lid = mostly(
        prop::sample::select(vec![0x00, 0x01, 0x02, 0x03, 0x04, 0x05]),
        prop::sample::select(vec![0x7f, 0x6f, 0xc9]),
    );
    let offset = mostly(
        prop::sample::select(vec![0, 4, 60, 512, 1000]),
        prop::sample::select(vec![2, 4097, 1 << 20, u64::MAX - 3]),
    );
    let get_log = (lid, 0..1024u16, offset).prop_map(|(lid, dwords_z, offset)| Admin::GetLog {
        lid,
        dwords_z,
        offset,
    });
    prop_oneof![2 => identify, 1 => get_log, 2 => get_feature(), 2 => set_feature()]
}

fn others() -> impl Strategy<Value = Admin> {
    let format = (
        nsid(),
        mostly(0..2u8, 2..16u8),
        mostly(0..2u8, 2..8u8),
        mostly(Just(0), 1..8u8),
    );
    let format = format.prop_map(|(nsid, format, erase, protection)| Admin::Format {
        nsid,
        format,
        erase,
        protection,
    });
    let odd = prop::sample::select(vec![0x03, 0x07, 0x3f, 0x7b, 0xbf, 0xff]);
    let odd = prop_oneof![
        odd.prop_map(|opcode| Admin::Odd { opcode, flags: 0 }),
        prop::sample::select(vec![0x01, 0x02, 0x40, 0x80]).prop_map(|flags| Admin::Odd {
            opcode: 0x06,
            flags
        }),
    ];
    prop_oneof![
        (any::<bool>(), 0..=5u16).prop_map(|(held, sqid)| Admin::Abort { held, sqid }),
        Just(Admin::EventRequest),
        Just(Admin::KeepAlive),
        format,
        odd,
    ]
}

fn step() -> impl Strategy<Value = Step> {
    let burst = (
        any::<usize>(),
        prop::sample::select(vec![1, 2, 5]),
        vec(any::<(bool, u8)>(), 1..40),
    );
    prop_oneof![
        24 => (any::<usize>(), io()).prop_map(|(queue, io)| Step::Io { queue, io }),
        4 => burst.prop_map(|(queue, nsid, writes)| Step::Burst { queue, nsid, writes }),
        6 => queues().prop_map(Step::Admin),
        8 => questions().prop_map(Step::Admin),
        4 => others().prop_map(Step::Admin),
        2 => (any::<bool>(), proptest::option::of((0..6u16, 0..6u16)))
            .prop_map(|(function, queues)| Step::Reset { function, queues }),
    ]
}

/// A program of up to so many steps.
pub fn program(most: usize) -> impl Strategy<Value = Vec<Step>> {
    vec(step(), 1..=most)
}
