// Package atomicfile writes files and folders that are either whole or absent.
//
// Everything is written under a temporary sibling name, forced to disk, and
// then renamed to its real name, so that a reader, a crash or a kill at any
// moment meets the old content, or the new content, or nothing, but never a
// part:
//
//	f, err := atomicfile.Create("run/state.safetensors")
//	if err != nil {
//		return err
//	}
//	defer f.Abort() // no effect after Commit
//	if _, err := f.Write(data); err != nil {
//		return err
//	}
//	return f.Commit()
//
// Folders work the same way through CreateDir. A process that is killed leaves
// its temporary behind; it starts with a dot and carries ".tmp-" or ".old-" and
// 16 hexadecimal digits at its end, which IsTemp recognises, so readers of a
// folder skip it and a person can delete it. A process holds the lock of its
// temporaries, so that the next writer knows the ones that nobody will finish.
package atomicfile
