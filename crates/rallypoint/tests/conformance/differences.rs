//! Where the servers truly differ: which arm answers what, and why.

use crate::harness::Arm;

/// What one arm does where not all do the same.
#[derive(Debug, Clone, Copy)]
pub struct Differences {
    /// Whether a progress request on a stream without watches is answered. Older etcds answer; later
    /// ones (seen: 3.5.30) wait for the first watch, since "all watches are synced" says nothing of
    /// none.
    pub progress_without_watches: bool,
    /// Whether the answer to Alarm has a header. etcd 3.4 forgot it.
    pub alarm_header: bool,
    /// Whether a watch that is refused for want of a token is answered with the id that it asked
    /// for and "permission denied". The first etcds of 3.5 do; before and after, the id is -1, as for
    /// every refused watch, and the reason is the one that other requests get.
    pub refused_watch_is_vague: bool,
    /// Whether a watch stream without a valid token is opened, and each watch on it refused. Ours is ended
    /// at once, since a client without a password must not cost memory for as long as it likes.
    pub opens_streams_of_strangers: bool,
    /// Whether a token that means nothing is refused even by a server that wants none. From etcd 3.6 on it is not, and
    /// ours has no users to compare it with: a client may well bring one from a server that had.
    pub checks_tokens_while_off: bool,
    /// Whether the list of members is for users only. From etcd 3.6 on it is.
    pub members_need_a_token: bool,
    /// Whether the status is for users only. From etcd 3.6 on it is, and in the last ones of 3.5 (seen: 3.5.30).
    pub status_needs_a_token: bool,
    /// Whether the operations of a transaction are checked in their order. Before etcd 3.6 all writes are checked
    /// before any read.
    pub operations_are_checked_in_order: bool,
    /// Whether a hash names the revision that it is of. From etcd 3.6 on it does.
    pub hash_has_its_revision: bool,
    /// Whether there is a hash of the very revision that was compacted last. From etcd 3.6 on there is.
    pub hash_at_compaction: bool,
    /// Whether hashes and defragmentation are refused to strangers in the words of other requests. Before etcd 3.6
    /// those of the users' store came through.
    pub upkeep_is_refused_as_others: bool,
    /// Whether a lock is refused to one whose lease has ended while it waited. The last ones of 3.4 do so too.
    pub lock_needs_its_lease: bool,
    /// Whether AuthStatus is served. From etcd 3.5 on it is.
    pub tells_whether_it_has_users: bool,
    /// Whether AuthStatus is served to anyone. From etcd 3.7 on it is.
    pub tells_strangers_that_it_has_users: bool,
    /// Whether a read of keys alone has their leases. From etcd 3.7 on it has not.
    pub keys_alone_have_leases: bool,
    /// Whether a transaction that keeps the value of a missing key is refused for that before it is for its lease. From
    /// etcd 3.7 on it is the other way round, as for a put by itself.
    pub a_missing_key_comes_before_its_lease: bool,
    /// Whether RangeStream is served. From etcd 3.7 on it is.
    pub reads_in_parts: bool,
    /// Whether a transaction that puts nothing is refused when there is no room. The first etcds of
    /// 3.5 do not look at what it would take.
    pub transactions_need_room: bool,
    /// Whether an operation without a request is refused before any other fault of its transaction.
    /// Ours cannot even say it in its own vocabulary, so it never gets as far as the other checks.
    pub no_operation_is_the_first_fault: bool,
    /// Whether a deletion at the very revision that was compacted is still told to a watch that
    /// starts there. The etcds at hand lose it (etcd issues 18089 and 19179, since mended).
    pub deletion_at_compaction: bool,
    /// Whether a notification of progress always comes behind the events up to its revision. The etcds at
    /// hand may send it a moment too early (etcd issue 15220, since mended).
    pub progress_after_events: bool,
}

/// The differences of one arm. Ours follows etcd 3.6, and has 3.7's new call.
pub fn of(arm: Arm) -> Differences {
    match arm {
        Arm::Etcd34 => Differences {
            progress_without_watches: true,
            alarm_header: false,
            refused_watch_is_vague: false,
            opens_streams_of_strangers: true,
            checks_tokens_while_off: true,
            members_need_a_token: false,
            status_needs_a_token: false,
            operations_are_checked_in_order: false,
            hash_has_its_revision: false,
            hash_at_compaction: false,
            upkeep_is_refused_as_others: false,
            lock_needs_its_lease: false,
            tells_whether_it_has_users: false,
            tells_strangers_that_it_has_users: false,
            keys_alone_have_leases: true,
            a_missing_key_comes_before_its_lease: true,
            reads_in_parts: false,
            transactions_need_room: false,
            no_operation_is_the_first_fault: false,
            deletion_at_compaction: false,
            progress_after_events: false,
        },
        Arm::Etcd35 => Differences {
            progress_without_watches: true,
            alarm_header: true,
            refused_watch_is_vague: true,
            opens_streams_of_strangers: true,
            checks_tokens_while_off: true,
            members_need_a_token: false,
            status_needs_a_token: false,
            operations_are_checked_in_order: false,
            hash_has_its_revision: false,
            hash_at_compaction: false,
            upkeep_is_refused_as_others: false,
            lock_needs_its_lease: true,
            tells_whether_it_has_users: true,
            tells_strangers_that_it_has_users: false,
            keys_alone_have_leases: true,
            a_missing_key_comes_before_its_lease: true,
            reads_in_parts: false,
            transactions_need_room: true,
            no_operation_is_the_first_fault: false,
            deletion_at_compaction: false,
            progress_after_events: false,
        },
        Arm::Etcd36 => Differences {
            progress_without_watches: false,
            alarm_header: true,
            refused_watch_is_vague: false,
            opens_streams_of_strangers: true,
            checks_tokens_while_off: false,
            members_need_a_token: true,
            status_needs_a_token: true,
            operations_are_checked_in_order: true,
            hash_has_its_revision: true,
            hash_at_compaction: true,
            upkeep_is_refused_as_others: true,
            lock_needs_its_lease: true,
            tells_whether_it_has_users: true,
            tells_strangers_that_it_has_users: false,
            keys_alone_have_leases: true,
            a_missing_key_comes_before_its_lease: true,
            reads_in_parts: false,
            transactions_need_room: false,
            no_operation_is_the_first_fault: false,
            deletion_at_compaction: true,
            progress_after_events: true,
        },
        Arm::Etcd37 => Differences {
            tells_strangers_that_it_has_users: true,
            keys_alone_have_leases: false,
            a_missing_key_comes_before_its_lease: false,
            reads_in_parts: true,
            ..of(Arm::Etcd36)
        },
        Arm::EmbeddedMemory | Arm::EmbeddedDisk => Differences {
            progress_without_watches: false,
            alarm_header: true,
            refused_watch_is_vague: false,
            opens_streams_of_strangers: false,
            checks_tokens_while_off: false,
            members_need_a_token: true,
            status_needs_a_token: true,
            operations_are_checked_in_order: true,
            hash_has_its_revision: true,
            hash_at_compaction: true,
            upkeep_is_refused_as_others: true,
            lock_needs_its_lease: true,
            tells_whether_it_has_users: true,
            tells_strangers_that_it_has_users: false,
            keys_alone_have_leases: true,
            a_missing_key_comes_before_its_lease: true,
            reads_in_parts: true,
            transactions_need_room: false,
            no_operation_is_the_first_fault: true,
            deletion_at_compaction: true,
            progress_after_events: true,
        },
    }
}
