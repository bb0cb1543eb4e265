//! The limit on this process's open files and sockets.

use std::io;

/// Allows as many as the system lets this process have: each connection of a client takes one, one
/// of an origin another, and shells give out 1,024. Returns how many there are now.
///
/// # Errors
/// When the system tells or allows nothing.
pub(crate) fn raise_limit() -> io::Result<u64> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the pointer is to a struct of ours that the call fills.
    if unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) } != 0 {
        return Err(io::Error::last_os_error());
    }
    limit.rlim_cur = limit.rlim_max;
    // SAFETY: the pointer is to a struct that the call only reads.
    if unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(limit.rlim_cur)
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_limit_is_as_high_as_it_may_be() {
        let first = super::raise_limit().unwrap();
        assert!(first >= 64);
        assert_eq!(super::raise_limit().unwrap(), first);
    }
}
