package stdin

import (
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// Waiting tells that in is a pipe with bytes that nobody has read yet. It does not wait for any.
func Waiting(in io.Reader) bool {
	file, ok := in.(*os.File)
	if !ok {
		return false
	}
	info, err := file.Stat()
	if err != nil || info.Mode()&os.ModeNamedPipe == 0 {
		return false
	}
	ready := []unix.PollFd{{Fd: int32(file.Fd()), Events: unix.POLLIN}}
	n, err := unix.Poll(ready, 0)
	return err == nil && n == 1 && ready[0].Revents&unix.POLLIN != 0
}
