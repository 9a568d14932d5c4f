package datasets

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/bits"

	"github.com/andybalholm/brotli"
	"github.com/klauspost/compress/snappy"
	"github.com/klauspost/compress/zstd"
	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/encoding/thrift"
	"github.com/parquet-go/parquet-go/format"
	"github.com/pierrec/lz4/v4"
)

// The library takes sizes and counts from the file and allocates by them. What it would
// allocate is checked before it reads: the footer when a file is opened, the pages of a
// row group when its first row is wanted.
const (
	maxFooter       = 16 << 20 // bytes
	maxPageHeader   = 1 << 20  // bytes, with statistics
	maxPageValues   = 8 << 20
	maxParquetBytes = 1 << 30 // of the largest page of every column, which are held together
)

// maxHeld is what the pages that are held at a time may take in memory: small files do
// not hold large ones.
func maxHeld(size int64) int64 { return min(maxParquetBytes, 64<<20+64*size) }

// checkFooter is an error unless the footer is whole and claims what it holds.
func checkFooter(r io.ReaderAt, size int64) error {
	var tail [8]byte
	if size < 12 {
		return fmt.Errorf("%d bytes, want at least 12", size)
	}
	if _, err := r.ReadAt(tail[:], size-8); err != nil {
		return err
	}
	if string(tail[4:]) != "PAR1" {
		return fmt.Errorf("ends in %q, want %q", tail[4:], "PAR1")
	}
	n := int64(binary.LittleEndian.Uint32(tail[:]))
	if n > size-12 || n > maxFooter {
		return fmt.Errorf("a footer of %d bytes in a file of %d, want at most %d", n, size, min(size-12, maxFooter))
	}
	footer := make([]byte, n)
	if _, err := r.ReadAt(footer, size-8-n); err != nil {
		return err
	}
	_, err := walkThrift(footer)
	return err
}

// pageCheck checks the pages of a row group.
type pageCheck struct {
	r    io.ReaderAt
	size int64
	room int64 // bytes that the columns' pages may still take
}

// checkRowGroup is an error if reading the row group takes more memory than its pages may
// take. columns are the leaves.
func checkRowGroup(r io.ReaderAt, size int64, group *format.RowGroup, columns []*parquet.Column) error {
	c := pageCheck{r: r, size: size, room: maxHeld(size)}
	if len(group.Columns) != len(columns) {
		return fmt.Errorf("a row group of %d columns, want %d", len(group.Columns), len(columns))
	}
	for i := range group.Columns {
		most, err := c.chunk(&group.Columns[i].MetaData, columns[i])
		if err != nil {
			return fmt.Errorf("column %.100q: %w", columns[i].Name(), err)
		}
		if c.room -= most; c.room < 0 {
			return fmt.Errorf("column %.100q: pages that take more than %d bytes together with those of the columns before, in a file of %d", columns[i].Name(), maxHeld(size), size)
		}
	}
	return nil
}

// chunk returns what the largest page of a column and its dictionary take.
func (c *pageCheck) chunk(m *format.ColumnMetaData, column *parquet.Column) (most int64, err error) {
	at := m.DataPageOffset
	if m.DictionaryPageOffset != 0 {
		at = m.DictionaryPageOffset
	}
	if at < 0 || m.TotalCompressedSize < 0 || at > c.size || m.TotalCompressedSize > c.size-at {
		return 0, fmt.Errorf("%d bytes at offset %d of a file of %d", m.TotalCompressedSize, at, c.size)
	}
	dictionary := int64(0)
	for end := at + m.TotalCompressedSize; at < end; {
		header, n, err := c.header(at, end)
		if err != nil {
			return 0, fmt.Errorf("page at offset %d: %w", at, err)
		}
		at += n
		if int64(header.CompressedPageSize) > end-at {
			return 0, fmt.Errorf("page at offset %d: %d bytes, of which the file holds %d", at, header.CompressedPageSize, end-at)
		}
		takes, err := c.page(header, at, m.Codec, column)
		if err != nil {
			return 0, fmt.Errorf("page at offset %d: %w", at, err)
		}
		if at += int64(header.CompressedPageSize); header.Type == format.DictionaryPage {
			dictionary = max(dictionary, takes)
		} else {
			most = max(most, takes)
		}
	}
	return most + dictionary, nil
}

// header reads a page's header of n bytes.
func (c *pageCheck) header(at, end int64) (_ *format.PageHeader, n int64, err error) {
	for window := int64(256); ; window *= 8 {
		data := make([]byte, min(window, end-at))
		if _, err := c.r.ReadAt(data, at); err != nil {
			return nil, 0, err
		}
		n, err := walkThrift(data)
		if err != nil {
			if int64(len(data)) < end-at && window < maxPageHeader {
				continue
			}
			return nil, 0, err
		}
		header := new(format.PageHeader)
		if err := thrift.Unmarshal(new(thrift.CompactProtocol), data[:n], header); err != nil {
			return nil, 0, err
		}
		return header, int64(n), nil
	}
}

// pageClaim is what the header of a page says of it.
type pageClaim struct {
	*format.PageHeader
	values   int64
	encoding format.Encoding
	column   *parquet.Column
}

func readClaim(h *format.PageHeader, column *parquet.Column) (p pageClaim, err error) {
	switch {
	case h.Type == format.DictionaryPage && h.DictionaryPageHeader.Valid:
		return pageClaim{h, int64(h.DictionaryPageHeader.V.NumValues), format.Plain, column}, nil
	case h.Type == format.DataPage && h.DataPageHeader.Valid:
		return pageClaim{h, int64(h.DataPageHeader.V.NumValues), h.DataPageHeader.V.Encoding, column}, nil
	case h.Type == format.DataPageV2 && h.DataPageHeaderV2.Valid:
		return pageClaim{h, int64(h.DataPageHeaderV2.V.NumValues), h.DataPageHeaderV2.V.Encoding, column}, nil
	}
	return p, fmt.Errorf("type %d without the header of one", h.Type)
}

// size is what the page takes once it is decoded.
func (p pageClaim) size(room, file int64) (int64, error) {
	plain, values := int64(p.UncompressedPageSize), p.values
	// Offsets, levels and values of up to 8 bytes.
	takes := int64(p.CompressedPageSize) + plain + 16*values
	switch {
	case p.CompressedPageSize < 0 || plain < 0 || values < 0 || values > maxPageValues:
		return 0, fmt.Errorf("%d values, %d bytes, want 0 to %d values", values, plain, maxPageValues)
	case takes > room:
		return 0, fmt.Errorf("%d bytes once it is decoded, want at most %d in a file of %d", takes, maxHeld(file), file)
	case p.column.Type().Kind() == parquet.FixedLenByteArray && int64(max(0, p.column.Type().Length()))*values > room:
		return 0, fmt.Errorf("%d values of %d bytes", values, p.column.Type().Length())
	case p.encoding == format.DeltaByteArray && values*plain > maxParquetBytes:
		// Prefixes of values before may make each value as long as the page.
		return 0, fmt.Errorf("%d values in %d bytes of %s, which may become too many: write it in another encoding", values, plain, p.encoding)
	}
	return takes, nil
}

// page returns what one page takes once it is decoded.
func (c *pageCheck) page(h *format.PageHeader, at int64, codec format.CompressionCodec, column *parquet.Column) (int64, error) {
	p, err := readClaim(h, column)
	if err != nil {
		return 0, err
	}
	takes, err := p.size(c.room, c.size)
	if err != nil {
		return 0, err
	}
	data := make([]byte, h.CompressedPageSize)
	if _, err := c.r.ReadAt(data, at); err != nil {
		return 0, err
	}
	levels := int64(0)
	if v2 := h.DataPageHeaderV2.V; h.Type == format.DataPageV2 {
		if levels, err = p.levelsBefore(data); err != nil {
			return 0, err
		}
		if v2.IsCompressed.Valid && !v2.IsCompressed.V {
			codec = format.Uncompressed
		}
	}
	body, err := inflate(codec, data[levels:], int64(h.UncompressedPageSize)-levels)
	if err == nil && h.Type == format.DataPage {
		body, err = p.pastLevels(body)
	}
	if err != nil {
		return 0, err
	}
	return takes, checkValues(body, p.encoding, p.values)
}

var errLevels = errors.New("levels that the page does not hold")

// levelsBefore checks the levels that a page of version 2 begins with, and returns their bytes.
func (p pageClaim) levelsBefore(data []byte) (int64, error) {
	v2 := p.DataPageHeaderV2.V
	r, d := int64(v2.RepetitionLevelsByteLength), int64(v2.DefinitionLevelsByteLength)
	if r < 0 || d < 0 || r+d > int64(len(data)) || v2.NumNulls < 0 || int64(v2.NumNulls) > p.values {
		return 0, errLevels
	}
	if err := checkRuns(data[:r], bits.Len(uint(p.column.MaxRepetitionLevel())), p.values); err != nil {
		return 0, err
	}
	return r + d, checkRuns(data[r:r+d], bits.Len(uint(p.column.MaxDefinitionLevel())), p.values)
}

// pastLevels checks the levels that the body of a page of version 1 begins with, and returns what follows them.
func (p pageClaim) pastLevels(body []byte) ([]byte, error) {
	for _, most := range []int{p.column.MaxRepetitionLevel(), p.column.MaxDefinitionLevel()} {
		if most == 0 {
			continue
		}
		if len(body) < 4 || int64(binary.LittleEndian.Uint32(body)) > int64(len(body)-4) {
			return nil, errLevels
		}
		n := 4 + int(binary.LittleEndian.Uint32(body))
		if err := checkRuns(body[4:n], bits.Len(uint(most)), p.values); err != nil {
			return nil, err
		}
		body = body[n:]
	}
	return body, nil
}

// checkValues compares how many values a page's data claims with its header.
func checkValues(data []byte, encoding format.Encoding, values int64) error {
	switch encoding {
	//lint:ignore SA1019 older writers still use it, and the reader takes it
	case format.PlainDictionary, format.RLEDictionary:
		if len(data) == 0 {
			return nil
		}
		return checkRuns(data[1:], int(data[0]), values)
	case format.RLE:
		if len(data) < 4 {
			return nil
		}
		return checkRuns(data[4:], 1, values)
	case format.DeltaBinaryPacked, format.DeltaLengthByteArray, format.DeltaByteArray:
		for range 2 { // sizes of blocks
			_, n := binary.Uvarint(data)
			if n <= 0 {
				return errors.New("blocks that are cut")
			}
			data = data[n:]
		}
		if total, n := binary.Uvarint(data); n <= 0 || total > uint64(values) {
			return fmt.Errorf("blocks of %d values, want %d", total, values)
		}
	}
	return nil
}

// checkRuns allows for the last run's padding.
func checkRuns(data []byte, width int, values int64) error {
	n, err := sumRuns(data, width)
	if err == nil && n > values+1024 {
		err = fmt.Errorf("runs of %d values, want %d", n, values)
	}
	return err
}

// inflate decompresses a page of want bytes, and no more of one that holds more.
func inflate(codec format.CompressionCodec, data []byte, want int64) ([]byte, error) {
	if want < 0 {
		return nil, fmt.Errorf("%d bytes decompressed", want)
	}
	var r io.Reader
	switch codec {
	case format.Uncompressed:
		return data, nil
	case format.Snappy:
		if n, err := snappy.DecodedLen(data); err != nil || int64(n) != want {
			return nil, fmt.Errorf("%d bytes decompressed (%v), want %d", n, err, want)
		}
		return snappy.Decode(nil, data)
	case format.Lz4Raw:
		out := make([]byte, want)
		n, err := lz4.UncompressBlock(data, out)
		if err != nil {
			return nil, fmt.Errorf("not the %d bytes that it announces: %w", want, err)
		}
		return out[:n], nil
	case format.Gzip:
		z, err := gzip.NewReader(bytes.NewReader(data))
		if err != nil {
			return nil, err
		}
		r = z
	case format.Zstd:
		z, err := zstd.NewReader(bytes.NewReader(data), zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(maxParquetBytes), zstd.WithDecoderMaxWindow(128<<20))
		if err != nil {
			return nil, err
		}
		defer z.Close()
		r = z
	case format.Brotli:
		r = brotli.NewReader(bytes.NewReader(data))
	default:
		return nil, fmt.Errorf("compression %s, want snappy, gzip, zstd, brotli, lz4-raw or none", codec)
	}
	out, err := io.ReadAll(io.LimitReader(r, want+1))
	if err != nil {
		return nil, err
	}
	if int64(len(out)) > want {
		return nil, fmt.Errorf("more than the %d bytes that it announces", want)
	}
	return out, nil
}
