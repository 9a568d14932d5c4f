// Package filelock keeps processes on one machine, or on one shared folder whose
// file system has locks, from doing the same work twice. The lock is that of
// github.com/gofrs/flock: flock(2), fcntl(2) where a system has no other, LockFileEx on
// Windows. It belongs to an open file: a process that dies lets go. Here stand the
// rules around it: which file is locked, waiting, and that a lock of a file that has
// lost its name excludes nobody.
//
// Where the system or the file system has no locks, taking one is [ErrNoLocks]: a lock
// that excludes nobody would let two runs write one file.
package filelock
