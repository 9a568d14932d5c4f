package objectstore

import (
	"crypto/sha1"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"hash"
	"hash/crc32"
	"hash/crc64"
	"io"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
)

// checksum is what the server says about an object's content.
type checksum struct {
	algorithm string // a key of checksums; "" if it says nothing
	value     string // base64
}

// nvme is the polynomial of CRC-64/NVME, reflected.
var nvme = crc64.MakeTable(0x9a6c9329ac4bc9b5)

// checksums are the algorithms of S3 that are compared.
var checksums = map[string]func() hash.Hash{
	"SHA256":    sha256.New,
	"SHA1":      sha1.New,
	"CRC64NVME": func() hash.Hash { return crc64.New(nvme) },
	"CRC32C":    func() hash.Hash { return crc32.New(crc32.MakeTable(crc32.Castagnoli)) },
	"CRC32":     func() hash.Hash { return crc32.NewIEEE() },
}

// checksumOf picks the strongest checksum that covers the whole object. Those of
// multipart uploads may be checksums of the parts' checksums: they end in "-PARTS".
func checksumOf(sha256, sha1, crc64nvme, crc32c, crc32 *string) checksum {
	for _, c := range []struct {
		name  string
		value *string
	}{{"SHA256", sha256}, {"SHA1", sha1}, {"CRC64NVME", crc64nvme}, {"CRC32C", crc32c}, {"CRC32", crc32}} {
		if v := aws.ToString(c.value); v != "" && !strings.Contains(v, "-") {
			return checksum{c.name, v}
		}
	}
	return checksum{}
}

// verify compares content with what the store knows about it; ErrDamaged if they
// differ. A store that knows nothing is believed.
func (i Info) verify(content io.Reader) error {
	algorithm, want := "SHA256", i.SHA256
	if want == "" {
		algorithm = i.checksum.algorithm
		raw, err := base64.StdEncoding.DecodeString(i.checksum.value)
		if err != nil || algorithm == "" {
			return nil
		}
		want = hex.EncodeToString(raw)
	}
	h := checksums[algorithm]()
	if _, err := io.Copy(h, content); err != nil {
		return err
	}
	if got := hex.EncodeToString(h.Sum(nil)); got != want {
		return fmt.Errorf("%w: %s %s, want %s", ErrDamaged, strings.ToLower(algorithm), got, want)
	}
	return nil
}
