package datasets

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
)

const (
	// checkName says in a header how the lines are checked: each carries the CRC-32C of
	// the check before it (the header's CRC-32C for the first one) and of itself without
	// its check. A line that is changed, missing, repeated or in another place shows.
	checkName  = "crc32c-chain"
	checkField = "check"

	checkStart  = `,"` + checkField + `":"`
	checkDigits = 8
	checkEnd    = `"}`
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// ErrChanged is returned for a line that is not as it was written, or not where.
var ErrChanged = errors.New("the line is not what was written here")

// chain is the check of the last line.
type chain uint32

func startChain(header []byte) chain { return chain(crc32.Checksum(header, castagnoli)) }

func (c *chain) nextCheck(object []byte) uint32 {
	var before [4]byte
	binary.LittleEndian.PutUint32(before[:], uint32(*c))
	sum := crc32.Update(crc32.Checksum(before[:], castagnoli), castagnoli, object)
	*c = chain(sum)
	return sum
}

// addCheck puts the check into a JSON object that is not empty.
func (c *chain) addCheck(object []byte) []byte {
	sum := c.nextCheck(object)
	return fmt.Appendf(object[:len(object)-1], "%s%0*x%s", checkStart, checkDigits, sum, checkEnd)
}

// verify is an error unless the line is what add made of the next object.
func (c *chain) verify(line []byte) error {
	cut := len(line) - len(checkStart) - checkDigits - len(checkEnd)
	if cut < 1 || !bytes.HasPrefix(line[cut:], []byte(checkStart)) {
		return fmt.Errorf("%w: it does not end with its check (a file that was edited on purpose is read without field %q in its header and its lines)", ErrChanged, checkField)
	}
	object := append(bytes.Clone(line[:cut]), '}')
	before := *c
	if got, want := c.nextCheck(object), line[cut+len(checkStart):][:checkDigits]; fmt.Sprintf("%0*x", checkDigits, got) != string(want) {
		return fmt.Errorf("%w: its check is %q, but that of its text after the line before (%08x) is %08x: a line was changed, removed, repeated or moved", ErrChanged, want, uint32(before), got)
	}
	return nil
}
