//go:build !linux

package mappedfile

import "io/fs"

func versionOf(fs.FileInfo) string { return "" }
