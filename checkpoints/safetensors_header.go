package checkpoints

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"
)

const (
	metadataKey = "__metadata__"
	// maxRank is not the format's limit but the libraries': no tensor has more
	// dimensions than NumPy's 64.
	maxRank = 64
)

// parseHeader reads the JSON header. It goes token by token: decoding into
// structs or maps would accept duplicate keys, and keys in another case.
func parseHeader(header []byte) (map[string]string, map[string]tensorInfo, error) {
	if len(header) == 0 || header[0] != '{' {
		return nil, nil, Corruptf("header starts with %.8q, want '{'", header)
	}
	if !utf8.Valid(header) {
		return nil, nil, Corruptf("header is not valid UTF-8")
	}
	p := headerParser{json.NewDecoder(bytes.NewReader(header))}
	p.dec.UseNumber()

	var metadata map[string]string
	tensors := make(map[string]tensorInfo)
	err := p.parseObject("header", func(key string) error {
		if key == metadataKey {
			if metadata != nil {
				return Corruptf("duplicate key %.200q", key)
			}
			metadata = make(map[string]string)
			return p.metadata(metadata)
		}
		if _, ok := tensors[key]; ok {
			return Corruptf("duplicate tensor %.200q", key)
		}
		t, err := p.parseTensor(key)
		tensors[key] = t
		return err
	})
	if err != nil {
		return nil, nil, err
	}
	if rest := header[p.dec.InputOffset():]; strings.Trim(string(rest), " ") != "" {
		return nil, nil, Corruptf("%.20q follows the header's object, want only spaces", rest)
	}
	return metadata, tensors, nil
}

type headerParser struct{ dec *json.Decoder }

// parseObject reads { key: value, … }; entry reads the value of a key.
func (p headerParser) parseObject(what string, entry func(key string) error) error {
	if err := p.delim(what, '{'); err != nil {
		return err
	}
	for p.dec.More() {
		key, err := p.str(what)
		if err != nil {
			return err
		}
		if err := entry(key); err != nil {
			return err
		}
	}
	return p.delim(what, '}')
}

func (p headerParser) metadata(dst map[string]string) error {
	return p.parseObject(metadataKey, func(key string) error {
		if _, ok := dst[key]; ok {
			return Corruptf("%s: duplicate key %.200q", metadataKey, key)
		}
		v, err := p.str(metadataKey)
		dst[key] = v
		return err
	})
}

func (p headerParser) parseTensor(name string) (t tensorInfo, err error) {
	const hasDType, hasShape, hasOffsets = 1, 2, 4
	has := 0
	what := fmt.Sprintf("tensor %.200q", name)
	err = p.parseObject(what, func(key string) error {
		bit := 0
		var err error
		switch key {
		case "dtype":
			bit = hasDType
			t.dtype, err = p.str(what)
		case "shape":
			bit = hasShape
			t.shape, err = p.ints(what + ": shape")
		case "data_offsets":
			bit = hasOffsets
			var offsets []int
			offsets, err = p.ints(what + ": data_offsets")
			if err == nil && len(offsets) != 2 {
				return Corruptf("%s: data_offsets with %d numbers, want 2", what, len(offsets))
			}
			if err == nil {
				t.begin, t.end = offsets[0], offsets[1]
			}
		default:
			return Corruptf("%s: unknown key %.200q, want one of: dtype, shape, data_offsets", what, key)
		}
		if err == nil && has&bit != 0 {
			return Corruptf("%s: duplicate key %.200q", what, key)
		}
		has |= bit
		return err
	})
	if err == nil && has != hasDType|hasShape|hasOffsets {
		return t, Corruptf("%s: missing key, want all of: dtype, shape, data_offsets", what)
	}
	return t, err
}

func (p headerParser) token(what string) (json.Token, error) {
	t, err := p.dec.Token()
	if err != nil {
		return nil, Corruptf("%s: header is not valid JSON: %v", what, err)
	}
	return t, nil
}

func (p headerParser) delim(what string, want json.Delim) error {
	t, err := p.token(what)
	if err != nil {
		return err
	}
	if t != want {
		return Corruptf("%s: got %.200q, want %q", what, tokenString(t), want.String())
	}
	return nil
}

func (p headerParser) str(what string) (string, error) {
	t, err := p.token(what)
	if err != nil {
		return "", err
	}
	s, ok := t.(string)
	if !ok {
		return "", Corruptf("%s: got %.200q, want a string", what, tokenString(t))
	}
	return s, nil
}

// ints reads an array of integers that are not negative and fit an int.
func (p headerParser) ints(what string) ([]int, error) {
	if err := p.delim(what, '['); err != nil {
		return nil, err
	}
	list := []int{}
	for p.dec.More() {
		if len(list) == maxRank {
			return nil, Corruptf("%s: more than %d numbers", what, maxRank)
		}
		t, err := p.token(what)
		if err != nil {
			return nil, err
		}
		number, _ := t.(json.Number)
		// Parsing refuses signs, fractions and exponents, which JSON allows.
		v, err := strconv.ParseUint(string(number), 10, strconv.IntSize-1)
		if err != nil {
			return nil, Corruptf("%s: got %.200q, want an integer from 0 to 2^%d-1", what, tokenString(t), strconv.IntSize-1)
		}
		list = append(list, int(v))
	}
	return list, p.delim(what, ']')
}

func tokenString(t json.Token) string {
	switch t := t.(type) {
	case string:
		return t
	case json.Number:
		return string(t)
	case json.Delim:
		return t.String()
	case bool:
		return strconv.FormatBool(t)
	}
	return "null"
}
