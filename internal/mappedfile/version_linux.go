package mappedfile

import (
	"fmt"
	"io/fs"
	"syscall"
)

// versionOf tells a file from what it was before. Programs can set most times of a file, but not that of its last change (ctime).
func versionOf(info fs.FileInfo) string {
	s, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return ""
	}
	return fmt.Sprintf("%d %d %d %d %d", s.Dev, s.Ino, s.Size, info.ModTime().UnixNano(), s.Ctim.Nano())
}
