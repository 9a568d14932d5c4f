// Package tokenizer turns text into the token ids of a Hugging Face model and
// back. It reads the tokenizer.json that lies beside a model's weights and does
// what that file says, or refuses it: a component this package does not know is
// an error that names it, because a tokenizer that skips one gives ids that look
// right and are not.
//
// # How text becomes ids
//
// A tokenizer.json is a pipeline, and [Tokenizer.Encode] runs it in this order:
//
//  1. added tokens (such as <|im_end|>) are cut out of the text and become one
//     id each;
//  2. each remaining piece is normalised (NFC; or spaces to ▁ for files
//     converted from SentencePiece);
//  3. the pre-tokenizer cuts it into words (by split patterns; at punctuation,
//     digits or white space; Metaspace);
//  4. the model gives the words ids: WordLevel (a closed list of words),
//     byte-level BPE (Llama-3, Qwen, GPT-2) or BPE over characters with a
//     fallback to bytes (Llama-2, Mistral);
//  5. the post-processor adds ids such as the beginning-of-sequence token, if
//     the caller asks for special tokens.
//
// [Tokenizer.Decode] runs the file's decoder over the ids' tokens, and [Stream]
// does the same one id at a time for text that is being generated: it holds back
// the bytes of a character that is not complete yet, and what it gives out is,
// put together, what Decode would have returned.
//
// The models implement the Model interface of github.com/sugarme/tokenizer, so
// they can be used in its pipelines. The rest of that package is not used: Go's
// regexp has no lookahead, which the split patterns of every current model need,
// so they are scanned by hand here, and its added-token splitter and BPE differ
// from the reference on real files.
//
// # Cost
//
// Encoding is linear in the length of the text up to the logarithm of the
// longest stretch in which merges can chain (a word, in ordinary text). A
// Tokenizer is not changed by use, apart from one atomic flag per vocabulary
// entry that caches whether the entry encodes to itself, and may be used from
// many goroutines.
//
// # What is not done
//
// The truncation and padding sections are ignored: they are settings for
// batches. clean_up_tokenization_spaces of tokenizer_config.json, which would
// remove spaces before punctuation from decoded text, is ignored too, so that
// decoding an encoding gives the text back.
package tokenizer
