"""Options of the commands, a class each; nothing here looks at a file or imports more than the settings.

An option stands once: as a field of its command's class, or of the settings that the class extends.
"""

__all__: list[str] = []
