// Package filelock keeps processes on one machine, or on one shared folder whose
// file system has locks, from doing the same work twice. A lock belongs to an open
// file: a process that dies lets go.
package filelock
