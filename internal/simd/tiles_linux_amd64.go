package simd

import "golang.org/x/sys/unix"

// tilesPermitted asks the kernel for the state of AMX's tiles, which a process has only then, and tells
// whether it is granted.
func tilesPermitted() bool {
	const requestPermission, tileData = 0x1023, 18 // ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA
	_, _, err := unix.RawSyscall(unix.SYS_ARCH_PRCTL, requestPermission, tileData, 0)
	return err == 0
}
