//go:build !linux

package simd

// tilesPermitted: only Linux is known to hand out AMX's tiles.
func tilesPermitted() bool { return false }
