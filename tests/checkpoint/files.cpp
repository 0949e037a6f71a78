// A checkpoint of some ranks in files: written, read on others, damaged.
#include <pentad/checkpoint/folder.hpp>
#include <pentad/checkpoint/reader.hpp>
#include <pentad/checkpoint/writer.hpp>

#include <io/scratch.hpp>

#include <doctest/doctest.h>

#include <sys/stat.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <map>
#include <random>
#include <string>
#include <vector>

using namespace pentad;
using namespace pentad::checkpoint;

namespace {

/// The value of an element of a tensor: its number in the whole.
template <class T>
std::vector<T> values(std::vector<std::int64_t> const& shape, Piece const& piece, double offset = 0) {
    std::vector<T> found(piece.size());
    Piece const whole{io::Box::whole(shape), 0, io::detail::elements(shape)};
    for_each_common_run(whole, piece, [&](std::uint64_t from, std::uint64_t to, std::uint64_t count) {
        for (std::uint64_t i = 0; i < count; ++i) found[to + i] = T(offset + static_cast<double>(from + i));
    });
    return found;
}

std::vector<std::int64_t> const matrix{64, 3000}, vector{700};

/// A matrix whose columns are sharded over two ranks, of which each is sharded over two more, and a vector.
std::vector<std::vector<StoredPiece>> shards() {
    std::vector<std::vector<StoredPiece>> ranks(4);
    for (std::size_t rank = 0; rank < 4; ++rank) {
        std::int64_t const column = rank < 2 ? 0 : 1800, columns = rank < 2 ? 1800 : 1200;
        std::uint64_t const size = static_cast<std::uint64_t>(64 * columns), middle = size / 3;
        for (auto const* const state : {"weight", "first_moment"}) {
            ranks[rank].push_back(
                {"m",
                 state,
                 "F64",
                 {{{0, column}, {64, columns}}, rank % 2 == 0 ? 0 : middle, rank % 2 == 0 ? middle : size}});
            if (rank == 3) ranks[rank].push_back({"v", state, "F64", {io::Box::whole(vector), 0, 700}});
        }
    }
    return ranks;
}

Manifest written(std::filesystem::path const& folder, std::int64_t step) {
    auto const partial = make_partial(folder, step);
    Manifest manifest{step, {{"seed", 7}}, {{"m", matrix}, {"v", vector}}, {}};
    int rank = 0;
    for (auto const& shard : shards()) {
        std::vector<std::vector<double>> data;
        for (auto const& stored : shard)
            data.push_back(values<double>(stored.tensor == "m" ? matrix : vector, stored.piece,
                                          stored.state == weight_state ? 0 : 0.5));
        std::vector<WrittenPiece> pieces;
        for (std::size_t i = 0; i < shard.size(); ++i)
            pieces.push_back({shard[i], reinterpret_cast<std::byte const*>(data[i].data())});
        manifest.files.push_back(write_pieces(partial / rank_file(rank++), pieces));
    }
    publish(folder, manifest);
    return manifest;
}

template <class T>
bool reads(Reader const& reader, std::string const& tensor, std::string_view state, Piece const& piece) {
    std::vector<T> found(piece.size());
    reader.read(tensor, state, piece, std::span(found));
    return found == values<T>(tensor == "m" ? matrix : vector, piece, state == weight_state ? 0 : 0.5);
}

} // namespace

TEST_CASE("what some ranks have written is read by others, whatever they hold") {
    test::Scratch const folder;
    written(folder.path(), 40);
    auto const found = list(folder.path());
    REQUIRE(found.size() == 1);
    CHECK(found[0].step == 40);
    Reader const reader(found[0].path);
    CHECK(reader.manifest().run.at("seed") == 7);
    CHECK(!reader.contains("v", "second_moment"));
    std::mt19937 random(3);
    for (int trial = 0; trial < 200; ++trial) {
        std::int64_t const row = random() % 64, column = random() % 3000;
        io::Box const box{{row, column},
                          {1 + std::int64_t(random() % (64 - row)), 1 + std::int64_t(random() % (3000 - column))}};
        std::uint64_t const begin = random() % io::detail::elements(box);
        Piece const piece{box, begin, begin + random() % (io::detail::elements(box) - begin) + 1};
        CHECK(reads<double>(reader, "m", trial % 2 == 0 ? "weight" : "first_moment", piece));
        if (trial % 10 == 0) CHECK(reads<float>(reader, "m", "weight", piece));
    }
    CHECK(reads<double>(reader, "v", "first_moment", {io::Box::whole(vector), 100, 700}));
    std::vector<double> none(1);
    CHECK_THROWS_WITH_AS(reader.read("v", "second_moment", {io::Box::whole(vector), 0, 1}, std::span(none)),
                         doctest::Contains("has no v/second_moment"), std::invalid_argument);
}

TEST_CASE("one changed byte, wherever it is, is found and named") {
    test::Scratch const folder;
    written(folder.path(), 1);
    auto const path = list(folder.path())[0].path;
    std::vector<std::filesystem::path> files;
    for (auto const& entry : std::filesystem::directory_iterator(path)) files.push_back(entry.path());
    std::mt19937 random(9);
    int in_data = 0;
    for (int trial = 0; trial < 300; ++trial) {
        auto const& file = files[random() % files.size()];
        auto const text = test::text_of(file);
        auto changed = text;
        // Half of the time in the manifest or a header.
        std::size_t const at = random() % (trial % 2 == 0 ? text.size() : std::min<std::size_t>(text.size(), 400));
        changed[at] = static_cast<char>(changed[at] ^ (1 << random() % 8));
        test::write_text(file, changed);
        std::string fault;
        try {
            Reader(path).verify([&](std::string const& name, std::string const& why) {
                CHECK(name == file.filename());
                fault += why;
            });
        } catch (Damaged const& error) {
            CHECK(file.filename() == manifest_file);
            fault = error.what();
        }
        CHECK_MESSAGE(fault.find("is damaged: " + file.filename().string()) != fault.npos, fault);
        in_data += fault.find(" is not what was written") != fault.npos && fault.find("header") == fault.npos ? 1 : 0;
        test::write_text(file, text);
    }
    CHECK(in_data > 50);
    Reader(path).verify([&](std::string const&, std::string const& why) { FAIL(why); });
}

TEST_CASE("a file that is cut short, longer, missing or another one is found") {
    test::Scratch const folder;
    written(folder.path(), 1);
    auto const path = list(folder.path())[0].path;
    auto const faults = [&] {
        std::string all;
        Reader(path).verify([&](std::string const& name, std::string const& why) { all += name + ": " + why + "\n"; });
        return all;
    };
    auto const file = path / "rank-00002.safetensors";
    auto const text = test::text_of(file);
    test::write_text(file, text.substr(0, text.size() - 1));
    CHECK(faults().find("rank-00002.safetensors: it has") != std::string::npos);
    test::write_text(file, text + "x");
    CHECK(faults().find("bytes, and ") != std::string::npos);
    test::write_text(file, test::text_of(path / "rank-00001.safetensors"));
    CHECK(!faults().empty());
    std::filesystem::remove(file);
    CHECK(faults().find("No such file") != std::string::npos);
    test::write_text(file, text);
    CHECK(faults().empty());
}

TEST_CASE("the pieces of a manifest are every element exactly once") {
    test::Scratch const folder;
    auto const whole = written(folder.path(), 1);
    CHECK(!cover_fault(whole));
    auto const refused = [&](auto&& change, char const* why) {
        auto changed = whole;
        change(changed);
        auto const fault = cover_fault(changed);
        REQUIRE(fault);
        CHECK_MESSAGE(fault->find(why) != std::string::npos, *fault);
        CHECK_THROWS_AS((void)manifest_of(text_of(changed)), std::invalid_argument);
    };
    refused([](auto& m) { m.files.pop_back(); }, "are missing");
    refused([](auto& m) { m.files[1].pieces.pop_back(); }, "are missing");
    refused([](auto& m) { m.files.push_back(m.files[0]); }, "are there twice");
    refused([](auto& m) { m.files[3].pieces[1].state = "weigh"; }, "v/weight are missing");
    refused([](auto& m) { m.tensors.pop_back(); }, "which is no tensor of it");
    refused([](auto& m) { m.tensors.push_back(m.tensors[0]); }, "twice");
    refused([](auto& m) { m.tensors[1].shape = {600}; }, "not inside");
    refused([](auto& m) { m.tensors.push_back({"w", {5}}); }, "elements of w/weight are missing");
    refused([](auto& m) { --m.files[0].pieces[0].piece.end; }, "are missing");
    refused([](auto& m) { m.files[0].pieces[0].type = "I64"; }, "different types");
}

TEST_CASE("a manifest is its own text, and anything else is refused") {
    test::Scratch const folder;
    auto const whole = written(folder.path(), 12);
    auto const text = text_of(whole);
    CHECK(text_of(manifest_of(text)) == text);
    for (std::string const& wrong :
         {std::string(), std::string("{}"), text.substr(1), text + " ", text.substr(0, text.size() / 2)})
        CHECK_THROWS_AS((void)manifest_of(wrong), std::invalid_argument);
    auto const signed_text = [](std::string const& body) {
        return "{\"checksum\":\"" + checksum_text(checksum(body)) + "\",\"manifest\":" + body + "}\n";
    };
    auto const body = text.substr(text.find(":{") + 1, text.size() - text.find(":{") - 3);
    CHECK(signed_text(body) == text);
    std::mt19937 random(5);
    for (int trial = 0; trial < 3000; ++trial) { // what has a right checksum and is wrong
        auto changed = body;
        for (int i = 0; i < 1 + trial % 4; ++i) changed[random() % changed.size()] = "0[]{},:\"-9e"[random() % 11];
        try {
            auto const read = manifest_of(signed_text(changed));
            CHECK(!cover_fault(read));
        } catch (std::invalid_argument const& error) {
            CHECK(std::string(error.what()).size() > 5);
        }
    }
}

TEST_CASE("the newest checkpoints are kept, and what is not complete is none") {
    test::Scratch const folder;
    for (int step = 10; step <= 50; step += 10) written(folder.path(), step);
    (void)make_partial(folder.path(), 60);
    std::filesystem::create_directory(folder / "step-7");
    std::filesystem::create_directory(folder / "step-000000x1");
    CHECK(list(folder.path()).size() == 5);
    retain(folder.path(), 2);
    auto const left = list(folder.path());
    REQUIRE(left.size() == 2);
    CHECK(left[0].step == 40);
    CHECK(left[1].step == 50);
    CHECK(std::filesystem::exists(partial_folder(folder.path(), 60)));
    remove_left_behind(folder.path());
    CHECK(!std::filesystem::exists(partial_folder(folder.path(), 60)));
    CHECK(list(folder.path()).size() == 2);
    CHECK(folder_name(123456789) == "step-123456789");
}

namespace {

/// The file of a rank, by its number in the file system.
ino_t file_of_rank(std::filesystem::path const& folder, std::int64_t step, int rank) {
    struct stat status{};
    CHECK(::stat((folder / folder_name(step) / rank_file(rank)).c_str(), &status) == 0);
    return status.st_ino;
}

void check_whole(std::filesystem::path const& path) {
    Reader const reader(path);
    reader.verify([](std::string const&, std::string const& why) { FAIL_CHECK(why); });
    CHECK(reads<double>(reader, "m", "first_moment", {io::Box::whole(matrix), 0, 64 * 3000}));
    std::size_t files = 0;
    for ([[maybe_unused]] auto const& entry : std::filesystem::directory_iterator(path)) ++files;
    CHECK(files == reader.manifest().files.size() + 1);
}

} // namespace

TEST_CASE("a checkpoint is written over the files of one that is no longer kept") {
    test::Scratch const folder;
    for (int step = 1; step <= 3; ++step) written(folder.path(), step);
    auto const file = file_of_rank(folder.path(), 1, 3);
    std::filesystem::path const linked = folder / "linked";
    std::filesystem::create_hard_link(folder / folder_name(1) / rank_file(0), linked);
    auto const text = test::text_of(linked);
    retain(folder.path(), 1);
    CHECK(list(folder.path()).size() == 1);
    // One of more ranks, whose files were larger.
    test::write_text(folder.path() / spare_folder / rank_file(4), "of a fifth rank");
    test::write_text(folder.path() / spare_folder / rank_file(1), std::string(5'000'000, 'x'));
    std::filesystem::remove(folder.path() / spare_folder / rank_file(2));
    std::filesystem::create_symlink("/dev/full", folder.path() / spare_folder / rank_file(2));
    written(folder.path(), 4);
    CHECK(!std::filesystem::exists(folder.path() / spare_folder));
    CHECK(file_of_rank(folder.path(), 4, 3) == file);
    check_whole(folder / folder_name(4));
    CHECK(test::text_of(linked) == text); // a copy made of links stays what it was
    retain(folder.path(), 1);
    CHECK(std::filesystem::exists(folder.path() / spare_folder));
    remove_spare(folder.path());
    CHECK(!std::filesystem::exists(folder.path() / spare_folder));
    check_whole(folder / folder_name(4));
}

TEST_CASE("what lies outside of the folder is never written, however it is linked into it") {
    test::Scratch const archive, folder;
    for (int step = 1; step <= 3; ++step) written(archive.path(), step);
    test::write_text(archive / "text", "of somebody else");
    auto const contents = [&] {
        std::map<std::string, std::string> texts;
        for (auto const& entry : std::filesystem::recursive_directory_iterator(archive.path()))
            if (entry.is_regular_file()) texts[entry.path().string()] = test::text_of(entry.path());
        return texts;
    };
    auto const before = contents();
    auto const archived = [&](int step) { return archive / folder_name(step); };
    using std::filesystem::create_directory_symlink;
    // A checkpoint, one whose files are links, a spare folder, a lock, and what a killed run has left.
    create_directory_symlink(archived(1), folder / folder_name(1));
    std::filesystem::create_directory(folder / folder_name(2));
    for (auto const& entry : std::filesystem::directory_iterator(archived(2)))
        std::filesystem::create_symlink(entry.path(), folder / folder_name(2) / entry.path().filename());
    create_directory_symlink(archived(3), folder.path() / spare_folder);
    create_directory_symlink(archived(3), partial_folder(folder.path(), 3));
    std::filesystem::create_symlink(archive / "text", folder.path() / lock_file);
    {
        FolderLock const lock(folder.path());
        remove_left_behind(folder.path());
        for (int step = 3; step <= 7; ++step) {
            written(folder.path(), step);
            retain(folder.path(), 1);
            CHECK(list(folder.path()).size() == 1);
        }
        check_whole(folder / folder_name(7));
    }
    CHECK(contents() == before);
    // A link that appears while a run goes on.
    remove_spare(folder.path());
    create_directory_symlink(archived(3), folder.path() / spare_folder);
    written(folder.path(), 8);
    create_directory_symlink(archived(3), partial_folder(folder.path(), 9));
    CHECK_THROWS_WITH_AS((void)make_partial(folder.path(), 9), doctest::Contains("cannot write"), io::FileError);
    CHECK(contents() == before);
}

TEST_CASE("a checkpoint whose folder is called by another step is named") {
    test::Scratch const folder;
    written(folder.path(), 7);
    std::filesystem::rename(folder / folder_name(7), folder / "best");
    CHECK(!Reader(folder / "best").name_fault());
    std::filesystem::rename(folder / "best", folder / folder_name(3));
    for (auto const& path : {folder / folder_name(3), folder / folder_name(3) / ""}) {
        std::vector<std::string> faults;
        Reader(path).verify([&](std::string const&, std::string const& why) { faults.push_back(why); });
        REQUIRE(faults.size() == 1);
        CHECK(faults[0] == "the checkpoint " + path.string() + " is of step 7, and its folder is called step-00000003");
    }
}

TEST_CASE("several pieces of a tensor, rows one after the other, are in one file") {
    test::Scratch const folder;
    auto const partial = make_partial(folder.path(), 1);
    Manifest manifest{1, nlohmann::json::object(), {{"m", matrix}}, {}};
    std::vector<WrittenPiece> pieces;
    std::vector<std::vector<double>> data;
    for (std::int64_t const begin : {0, 10, 11})
        pieces.push_back({{"m",
                           "weight",
                           "F64",
                           {{{begin, 0},
                             {begin == 0    ? 10
                              : begin == 10 ? 1
                                            : 53,
                              3000}},
                            0,
                            begin == 0    ? 30'000u
                            : begin == 10 ? 3'000u
                                          : 159'000u}}});
    for (auto const& piece : pieces) data.push_back(values<double>(matrix, piece.stored.piece));
    for (std::size_t i = 0; i < pieces.size(); ++i) pieces[i].data = reinterpret_cast<std::byte const*>(data[i].data());
    manifest.files.push_back(write_pieces(partial / rank_file(0), pieces));
    CHECK(names_in_file(manifest.files[0].pieces) == std::vector<std::string>{"m/weight", "m/weight/1", "m/weight/2"});
    publish(folder.path(), manifest);
    Reader const reader(folder / folder_name(1));
    reader.verify([](std::string const&, std::string const& why) { FAIL(why); });
    CHECK(reads<double>(reader, "m", "weight", {{{9, 1000}, {4, 1500}}, 100, 5900}));
}

TEST_CASE("what a killed run has left unfinished is overwritten too") {
    test::Scratch const folder;
    written(folder.path(), 1);
    for (int step : {2, 3}) {
        auto const partial = make_partial(folder.path(), step);
        test::write_text(partial / rank_file(0), "half of it");
        test::write_text(partial / "manifest.json.tmp", "half of it");
    }
    test::write_text(partial_folder(folder.path(), 4), "a file in the way");
    remove_left_behind(folder.path());
    for (int step : {2, 3, 4}) CHECK(!std::filesystem::exists(partial_folder(folder.path(), step)));
    CHECK(std::filesystem::is_directory(folder.path() / spare_folder));
    written(folder.path(), 5);
    for (auto const& found : list(folder.path())) check_whole(found.path);
    CHECK(list(folder.path()).size() == 2);
}

TEST_CASE("one run at a time saves to a folder") {
    test::Scratch const folder;
    {
        FolderLock const lock(folder.path());
        CHECK_THROWS_WITH_AS(FolderLock(folder.path()), doctest::Contains("another run saves to the folder"),
                             io::FileError);
    }
    {
        FolderLock const again(folder.path());
    }
    std::filesystem::remove(folder.path() / lock_file);
    std::filesystem::create_directory(folder.path() /
                                      lock_file); // as a file of another user is one that cannot be opened
    CHECK_THROWS_WITH_AS(FolderLock(folder.path()), doctest::Contains(": remove that file, or save to a folder in "),
                         io::FileError);
}

TEST_CASE("a folder that is gone, or is a file, is an error that names it") {
    test::Scratch const folder;
    CHECK_THROWS_WITH_AS((void)make_partial(folder / "gone", 1), doctest::Contains("gone"), io::FileError);
    CHECK_THROWS_AS((void)list(folder / "gone"), io::FileError);
    CHECK_THROWS_AS(Reader(folder.path()), io::FileError);
}
