package serving

import (
	"crypto/rand"
	"encoding/binary"
	"encoding/hex"
)

// randomID tells one answer from another.
func randomID() string {
	var b [12]byte
	rand.Read(b[:])
	return hex.EncodeToString(b[:])
}

// randomSeed is the seed of a request that names none.
func randomSeed() uint64 {
	var b [8]byte
	rand.Read(b[:])
	return binary.LittleEndian.Uint64(b[:]) >> 1
}
